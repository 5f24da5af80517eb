"""Scales steps launched alone to the speed of the same steps in an engine's loop.

A GPU under steady load runs at another clock than one that pauses between launches: a shape measured alone says how
its time depends on tokens and contexts, the steps of a loop say how fast the device is while serving.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.calibration.values import Throttle
from twinserve.sim_backend.fitting.measured import MeasuredSteps
from twinserve.sim_backend.fitting.predict import device_ns
from twinserve.sim_backend.fitting.robust import fit_non_negative
from twinserve.sim_backend.fitting.terms import MIN_STEPS, fit_terms, slowdown_columns

MIN_LOOP_STEPS = 30


def at_loop_level(
    steps: MeasuredSteps, throttles: Mapping[GraphMode, Throttle] | None = None
) -> tuple[MeasuredSteps, Mapping[GraphMode, float]]:
    """``steps`` with the device times of those launched alone multiplied by one factor per graph mode.

    A factor is how much longer a step of the loop takes than terms fitted to the lone shapes of its mode say, apart
    from what its throttle adds; rows that are held out have no part in it. Modes measured in one way only are left as
    they are.
    """
    found = {mode: _factor(steps.of(mode), (throttles or {}).get(mode)) for mode in GraphMode}
    factors = {mode: factor for mode, factor in found.items() if factor is not None}
    scale = np.ones(len(steps))
    for mode, factor in factors.items():
        scale[(steps.modes == str(mode)) & ~steps.in_loop] = factor
    longer = (scale - 1) * np.nan_to_num(steps.device_ns)
    levelled = replace(steps, device_ns=steps.device_ns * scale, interval_ns=steps.interval_ns + longer)
    return levelled, factors


def _factor(steps: MeasuredSteps, throttle: Throttle | None) -> float | None:
    known = steps.where(~steps.held_out & np.isfinite(steps.device_ns))
    alone, loop = known.where(~known.in_loop), known.where(known.in_loop)
    if len(alone) < MIN_STEPS or len(loop) < MIN_LOOP_STEPS:
        return None
    mode = GraphMode(str(steps.modes[0]))
    expected = device_ns(fit_terms(alone, alone.device_ns, mode), loop)
    columns = np.column_stack([expected, *slowdown_columns(loop, mode, throttle).values()])
    return float(fit_non_negative(columns, loop.device_ns)[0])
