"""The dense part of a step as columns of a linear fit, one per knot of a piecewise-linear function."""

from __future__ import annotations

import numpy as np

from twinserve.sim_backend.arrays import Floats, Matrix

MOST_EAGER_KNOTS = 16
STEPS_PER_KNOT = 4
STEPS_PER_GRAPH = 3


def graph_knots(tokens: Floats) -> Floats:
    """The padded sizes seen often enough: each is a graph of its own. One hiccup of a rare size makes no level."""
    sizes, counts = np.unique(tokens, return_counts=True)
    often = counts >= STEPS_PER_GRAPH
    often[[0, -1]] = True  # nothing is known beyond the ends
    return sizes[often]


def eager_knots(tokens: Floats) -> Floats:
    """At most sixteen sizes from the least to the greatest, denser where more steps are."""
    sizes = np.unique(tokens)
    most = max(min(MOST_EAGER_KNOTS, len(tokens) // STEPS_PER_KNOT), 2)
    if len(sizes) <= most:
        return sizes
    spread = np.quantile(sizes, np.linspace(0, 1, most // 2 + 1), method="nearest")
    dense = np.quantile(tokens, np.linspace(0, 1, most - most // 2 + 1), method="nearest")
    return np.unique(np.concatenate([spread, dense]))


def value_columns(tokens: Floats, knots: Floats) -> Matrix:
    """Columns whose coefficients are the values at ``knots``."""
    unit = np.eye(len(knots))
    return np.column_stack([np.interp(tokens, knots, unit[index]) for index in range(len(knots))])


def rise_columns(tokens: Floats, knots: Floats) -> Matrix:
    """Columns whose coefficients are the rises from knot to knot: non-negative ones never fall."""
    values = value_columns(tokens, knots)
    rises: Matrix = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
    return rises
