"""A piecewise-linear function of one number, fast enough to evaluate in every step."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from math import isfinite


class PiecewiseLinear:
    """Linear between knots ``(x, y)``; constant before the first, along the last slope after the last.

    Step times over tokens are such functions: flat while weights stream from memory, steps at tile and graph
    sizes, then linear. Interpolation is linear, never logarithmic.

    Raises:
        ValueError: no knots, ``x`` not ascending, or a knot that is negative or not finite.
    """

    __slots__ = ("_slopes", "_xs", "_ys", "knots")

    def __init__(self, knots: Iterable[tuple[float, float]]) -> None:
        self.knots = tuple((float(x), float(y)) for x, y in knots)
        _check(self.knots)
        self._xs = [x for x, _ in self.knots]
        self._ys = [y for _, y in self.knots]
        slopes = [(self._ys[i + 1] - self._ys[i]) / (self._xs[i + 1] - self._xs[i]) for i in range(len(self.knots) - 1)]
        # A value that fell towards zero beyond the last knot would become a negative time.
        self._slopes = [*slopes, max(slopes[-1], 0.0) if slopes else 0.0]

    def __call__(self, x: float) -> float:
        index = bisect_right(self._xs, x) - 1
        if index < 0:
            return self._ys[0]
        return self._ys[index] + self._slopes[index] * (x - self._xs[index])


def _check(knots: tuple[tuple[float, float], ...]) -> None:
    if not knots:
        raise ValueError("knots: at least one [tokens, ms] pair is needed")
    if any(not isfinite(x) or not isfinite(y) or x < 0 or y < 0 for x, y in knots):
        raise ValueError(f"knots: every number must be finite and not negative, got {list(knots)}")
    if any(left >= right for (left, _), (right, _) in pairwise(knots)):
        raise ValueError(f"knots: tokens must ascend, got {[x for x, _ in knots]}")
