"""Means and confidence intervals of figures over several seeds.

The figure of a group is the mean of the per-seed figures (the mean of the per-seed p99, say), never the figure of
the pooled requests: seeds are the independent observations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedMean:
    """Mean over ``count`` seeds with its confidence interval; without values all are None, with one the interval is."""

    mean: float | None
    low: float | None
    high: float | None
    count: int


def mean_over_seeds(values: Iterable[float | None], confidence: float = 0.95) -> SeedMean:
    """Mean of per-seed figures with a Student-t interval. Seeds without the figure (None) are left out and counted."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    if len(known) == 0:
        return SeedMean(mean=None, low=None, high=None, count=0)
    mean = float(known.mean())
    if len(known) == 1:
        return SeedMean(mean=mean, low=None, high=None, count=1)
    half = _half_width(known, confidence)
    return SeedMean(mean=mean, low=mean - half, high=mean + half, count=len(known))


def aggregate_seeds(results: Sequence[Mapping[str, Any]], confidence: float = 0.95) -> dict[str, SeedMean]:
    """``mean_over_seeds`` of every figure that is a number or None in all ``results``; the rest is left out."""
    if not results:
        return {}
    names = [name for name in results[0] if all(_is_figure(result.get(name)) for result in results)]
    return {name: mean_over_seeds([result.get(name) for result in results], confidence) for name in names}


def _half_width(values: np.ndarray[Any, np.dtype[np.float64]], confidence: float) -> float:
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(values) - 1, (1 + confidence) / 2))
    return quantile * float(values.std(ddof=1)) / float(np.sqrt(len(values)))


def _is_figure(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
