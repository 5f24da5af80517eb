"""Errors of a calibration's predictions over measured steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.arrays import Floats
from twinserve.sim_backend.calibration.values import Calibration, HeldOutError
from twinserve.sim_backend.fitting.measured import MeasuredSteps
from twinserve.sim_backend.fitting.predict import predicted_ns


@dataclass(frozen=True, slots=True)
class Judged:
    """Steps that a calibration has terms for, with what it says about them."""

    steps: MeasuredSteps
    predicted_ns: Floats

    @property
    def percent(self) -> Floats:
        """Signed error of every step, in percent of the measured time."""
        return 100 * (self.predicted_ns / self.steps.judged_ns - 1)

    def of(self, mode: GraphMode) -> Judged:
        """The steps of one graph mode."""
        rows = self.steps.modes == str(mode)
        return Judged(self.steps.where(rows), self.predicted_ns[rows])

    def error(self) -> HeldOutError | None:
        """The figures of all steps together; None where there are none."""
        if len(self.steps) == 0:
            return None
        sizes, measured = np.abs(self.percent), self.steps.judged_ns
        return HeldOutError(
            num_steps=len(self.steps),
            mape_percent=_digits(sizes.mean()),
            p95_percent=_digits(np.percentile(sizes, 95)),
            bias_percent=_digits(100 * (self.predicted_ns.sum() / measured.sum() - 1)),
        )


def judge(calibration: Calibration, steps: MeasuredSteps) -> Judged:
    """``steps`` against ``calibration``; steps of graph modes without terms are left out."""
    predicted = predicted_ns(calibration, steps)
    known = np.isfinite(predicted)
    return Judged(steps.where(known), predicted[known])


def held_out_error(calibration: Calibration, steps: MeasuredSteps) -> Calibration:
    """``calibration`` with its error on ``steps``, which its fit has not seen."""
    return replace(calibration, held_out=judge(calibration, steps).error())


def _digits(value: float) -> float:
    return round(float(value), 3)
