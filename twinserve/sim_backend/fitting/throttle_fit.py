"""Finds whether and when the device slows down under load: the time constant and the share."""

from __future__ import annotations

import numpy as np

from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.calibration.recent_work import TIME_CONSTANTS_MS
from twinserve.sim_backend.calibration.values import Throttle
from twinserve.sim_backend.fitting.level import at_loop_level
from twinserve.sim_backend.fitting.measured import MeasuredSteps
from twinserve.sim_backend.fitting.predict import device_ns
from twinserve.sim_backend.fitting.terms import MIN_STEPS, fit_terms

FROM_SHARES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8)
MUST_GIVE = 0.95  # of the error without: a throttle that gives less is noise
MOST_STEPS = 2000
MIN_LOOP_STEPS = 200  # the error of fewer hides what load does


def fit_throttles(steps: MeasuredSteps) -> dict[GraphMode, Throttle]:
    """Those of mixed graphs and of decode graphs, where there is one: eager steps may be bound by the host."""
    found = {mode: fit_throttle(steps, mode) for mode in (GraphMode.DECODE, GraphMode.MIXED)}
    return {mode: throttle for mode, throttle in found.items() if throttle is not None}


def fit_throttle(steps: MeasuredSteps, mode: GraphMode) -> Throttle | None:
    """The throttle under which terms fit the loop's steps of ``mode`` best; None when that gives too little.

    Only steps of which the device time is known are looked at.
    """
    seen = _sample(steps, mode)
    if seen.in_loop.sum() < MIN_LOOP_STEPS:
        return None
    candidates = [
        Throttle(time_constant_ms=time_constant, from_share=share)
        for time_constant in TIME_CONSTANTS_MS
        for share in FROM_SHARES
    ]
    without = _error(seen, mode, None)
    errors = [_error(seen, mode, candidate) for candidate in candidates]
    best = int(np.argmin(errors))
    return candidates[best] if errors[best] <= MUST_GIVE * without else None


def _sample(steps: MeasuredSteps, mode: GraphMode) -> MeasuredSteps:
    of_interest = (steps.modes == str(mode)) & ~steps.held_out & np.isfinite(steps.device_ns)
    seen = steps.where(of_interest)
    every = max(len(seen) // MOST_STEPS, 1)
    return seen.where(np.arange(len(seen)) % every == 0)


def _error(steps: MeasuredSteps, mode: GraphMode, throttle: Throttle | None) -> float:
    """Mean absolute relative error of the loop's steps."""
    levelled, _ = at_loop_level(steps, {} if throttle is None else {mode: throttle})
    if len(levelled) < MIN_STEPS:
        return float("inf")
    terms = fit_terms(levelled, levelled.device_ns, mode, throttle)
    loop = levelled.where(levelled.in_loop)
    return float(np.abs(device_ns(terms, loop, throttle) / loop.device_ns - 1).mean())
