"""The search for a minimum under noise: the same from any start."""

from __future__ import annotations

from math import log, sin

import pytest

from twinserve.experiments.reproduce.lattice import find_minimum


def rugged(values):
    """A valley at (40, 0.1) with dents that stop a plain descent."""
    x, y = log(values[0] / 40), log(values[1] / 0.1)
    return abs(x) + abs(y) + abs(x + y) / 2 + 0.02 * (1 + sin(997 * x) * sin(733 * y))


@pytest.mark.parametrize("start", [(25.0, 0.15), (40.0, 0.1), (80.0, 0.03)])
def test_every_start_reaches_the_same_minimum(start):
    assert find_minimum(rugged, start).values == find_minimum(rugged, (33.0, 0.2)).values


def test_minimum_lies_in_the_valley_and_is_no_worse_than_its_surroundings():
    found = find_minimum(rugged, (20.0, 0.3))
    assert found.values == pytest.approx((40, 0.1), rel=0.05)
    assert found.loss == rugged(found.values)
    assert found.loss <= found.mean_loss


def test_parameter_without_effect_does_not_drift():
    found = find_minimum(lambda values: abs(log(values[0] / 40)), (30.0, 0.1))
    assert found.values == pytest.approx((40, 0.1), rel=0.09)


def test_no_point_is_evaluated_twice():
    asked = []
    found = find_minimum(lambda values: asked.append(values) or rugged(values), (25.0, 0.15))
    assert found.num_evaluations == len(asked) == len(set(asked))
