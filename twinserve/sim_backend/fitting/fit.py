"""Fits a calibration to measured steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.calibration.values import Calibration, HostGap, MeasuredEngine, StepTerms, Throttle
from twinserve.sim_backend.fitting.accuracy import held_out_error
from twinserve.sim_backend.fitting.measured import MeasuredSteps
from twinserve.sim_backend.fitting.terms import MIN_STEPS, fit_host_gap, fit_terms

COVERED = ("num_tokens", "num_rows", "decode_context", "prefill_pairs")
"""Counts beyond whose range a calibration extrapolates; the others follow from them or are small."""


class TooFewStepsError(ValueError):
    """There is too little to fit."""


def fit_calibration(
    engine: MeasuredEngine, steps: MeasuredSteps, origin: str, throttles: Mapping[GraphMode, Throttle] | None = None
) -> Calibration:
    """Terms per graph mode and the host gap, fitted to what is not held out, with the error on what is.

    With device times the device's part and the host gap are fitted apart, the gap on steps of an engine's loop (on
    all steps where there are none). Without them the terms take the whole interval and the host gap is zero. A mode
    with too few steps gets no terms.

    Raises:
        TooFewStepsError: no mode has enough steps.
    """
    fitted, throttles = steps.where(~steps.held_out), throttles or {}
    calibration = Calibration(
        **{fact.name: getattr(engine, fact.name) for fact in fields(MeasuredEngine)},
        origin=origin,
        modes=_modes(fitted, throttles),
        throttles=throttles,
        host_gap=_host_gap(fitted),
        covered=_covered(fitted),
    )
    return held_out_error(calibration, steps.where(steps.held_out))


def _modes(steps: MeasuredSteps, throttles: Mapping[GraphMode, Throttle]) -> Mapping[GraphMode, StepTerms]:
    target = steps.device_ns if steps.timed_on_device else steps.interval_ns
    rows = {mode: steps.modes == str(mode) for mode in GraphMode}
    enough = {mode: rows for mode, rows in rows.items() if rows.sum() >= MIN_STEPS}
    if not enough:
        counts = ", ".join(f"{mode} {rows[mode].sum()}" for mode in GraphMode)
        raise TooFewStepsError(f"too few steps to fit ({counts}); every graph mode needs at least {MIN_STEPS}")
    return {
        mode: fit_terms(steps.where(rows), target[rows], mode, throttles.get(mode)) for mode, rows in enough.items()
    }


def _host_gap(steps: MeasuredSteps) -> HostGap:
    known = np.isfinite(steps.device_ns) & np.isfinite(steps.interval_ns)
    in_loop = known & steps.in_loop
    rows = in_loop if in_loop.sum() >= MIN_STEPS else known
    return fit_host_gap(steps.where(rows)) if rows.sum() >= MIN_STEPS else HostGap()


def _covered(steps: MeasuredSteps) -> dict[str, tuple[int, int]]:
    return {name: (int(steps.features[name].min()), int(steps.features[name].max())) for name in COVERED}
