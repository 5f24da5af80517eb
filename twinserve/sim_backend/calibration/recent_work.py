"""Recent prefill load, which slows steps down because a GPU near its power limit lowers its clock.

Prompt tokens keep the matrix units busy, decodes wait for memory. The *share* is the exponentially weighted part of
recent time that went to steps with prompt tokens: 0 after a pause or many decodes, near 1 in a steady prefill. On an
H200 it moves the time of a 512-token step by 12 %, within a tenth of a second.
"""

from __future__ import annotations

from math import exp

import numpy as np

from twinserve.sim_backend.arrays import Floats, Matrix

TIME_CONSTANTS_MS = (10.0, 20.0, 35.0, 50.0, 100.0, 200.0, 400.0)
"""Those that a fit chooses from."""


class RecentWork:
    """The share as time goes on; ``time_constant_ns`` is how long it takes to forget all but 1 / e."""

    __slots__ = ("_last", "_share", "_time_constant")

    def __init__(self, time_constant_ns: float) -> None:
        self._time_constant = time_constant_ns
        self._share = 0.0
        self._last: float | None = None

    def mean_during(self, start: float, busy_ns: float, interval_ns: float) -> float:
        """The mean share of a step that lasts ``interval_ns`` from ``start``, ``busy_ns`` of it on prompt tokens."""
        before, target, kept = self._before(start), busy_ns / interval_ns, exp(-interval_ns / self._time_constant)
        return target + (before - target) * (1.0 - kept) * self._time_constant / interval_ns

    def passes(self, start: float, busy_ns: float, interval_ns: float) -> None:
        """That step is over."""
        before, target, kept = self._before(start), busy_ns / interval_ns, exp(-interval_ns / self._time_constant)
        self._share = target + (before - target) * kept
        self._last = start + interval_ns

    def _before(self, start: float) -> float:
        """The share at ``start``: it fades while nothing runs."""
        if self._last is None or start <= self._last:
            return self._share
        return self._share * exp((self._last - start) / self._time_constant)


def recent_shares(start_ns: Floats, interval_ns: Floats, busy_ns: Floats) -> Matrix:
    """Mean shares of steps in the order in which they ran, a column for each of TIME_CONSTANTS_MS."""
    shares = np.zeros((len(start_ns), len(TIME_CONSTANTS_MS)))
    for column, time_constant in enumerate(TIME_CONSTANTS_MS):
        work = RecentWork(time_constant * 1e6)
        for row, step in enumerate(zip(start_ns.tolist(), busy_ns.tolist(), interval_ns.tolist(), strict=True)):
            shares[row, column] = work.mean_during(*step)
            work.passes(*step)
    return shares


def unknown_shares(count: int) -> Matrix:
    """For steps of which nobody knows what ran before them: as if nothing had."""
    return np.zeros((count, len(TIME_CONSTANTS_MS)))
