"""Attributes each error of a simulated figure to step time, host gap or feedback.

The recorded plans are timed again with the predicted device times (step time), then with the predicted host gaps as
well (host gap). What the free-running simulation adds to that is feedback: steps of other lengths let other requests
into them. The three add up to the whole error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from twinserve.experiments.metrics.window import Window, measurement_window
from twinserve.experiments.validation.figures import FIGURES, Figures, error_percent, figures
from twinserve.experiments.validation.recorded import RecordedRun
from twinserve.experiments.validation.step_times import StepTimes
from twinserve.experiments.validation.warp import TimeWarp, warped
from twinserve.run_core.record import RunRecord
from twinserve.sim_backend.arrays import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureError:
    """One figure: what was measured and simulated, and the error in percent of the measured one, whole and in parts."""

    real: float | None
    simulated: float | None
    error_percent: float | None
    step_time_percent: float | None
    host_gap_percent: float | None
    feedback_percent: float | None


def split_errors(
    run: RecordedRun, measured: StepTimes, predicted: StepTimes, simulated: RunRecord
) -> dict[str, FigureError]:
    """The errors of FIGURES. ``simulated`` is the free-running simulation of ``run``.

    Where the device was not timed the host gap is part of the step time.
    """
    window = measurement_window(run.record.requests, run.config.metrics)
    real = figures(run.record, window)
    device_only = _retimed(run, window, predicted.device + measured.host_gap)
    both = _retimed(run, window, predicted.interval)
    free = figures(simulated, measurement_window(simulated.requests, run.config.metrics))
    return {name: _figure_error(real[name], device_only[name], both[name], free[name]) for name in FIGURES}


def _retimed(run: RecordedRun, window: Window, durations: Floats) -> Figures:
    """The figures of the recorded plans with other step times; the same requests are measured."""
    warp = TimeWarp(run.record.steps["start_ns"], run.record.steps["end_ns"], durations)
    return figures(warped(run.record, durations), replace(window, start_ns=int(warp(window.start_ns))))


def _figure_error(real: float | None, device_only: float | None, both: float | None, free: float | None) -> FigureError:
    first, second, whole = (error_percent(real, figure) for figure in (device_only, both, free))
    return FigureError(
        real=real,
        simulated=free,
        error_percent=whole,
        step_time_percent=first,
        host_gap_percent=_minus(second, first),
        feedback_percent=_minus(whole, second),
    )


def _minus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
