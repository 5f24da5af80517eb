"""Compares predicted with measured step times: device part, host gap and both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from twinserve.experiments.validation.recorded import RecordedRun
from twinserve.run_core.record import Columns
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.arrays import Floats
from twinserve.sim_backend.cost_model import SplitCostModel

PARTS = ("step time", "host gap", "interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Nanoseconds per recorded step; ``interval`` is from the step's start to the next one's: device and host gap."""

    device: Floats
    interval: Floats

    @property
    def host_gap(self) -> Floats:
        return self.interval - self.device

    def part(self, name: str) -> Floats:
        """One of PARTS."""
        return {"step time": self.device, "host gap": self.host_gap, "interval": self.interval}[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepError:
    """Error of one part over some steps, in percent of the measured times; None where those are all 0.

    ``bias_percent`` is of the sums and has a sign, ``mape_percent`` and ``p95_percent`` are the mean and the 95th
    percentile of the absolute errors of single steps.
    """

    num_steps: int
    measured_ms: float
    predicted_ms: float
    bias_percent: float | None
    mape_percent: float | None
    p95_percent: float | None


def measured_times(run: RecordedRun) -> StepTimes:
    """Where the device was not timed, all of an interval counts as step time."""
    steps = run.record.steps
    interval = np.asarray(steps["end_ns"], dtype=np.float64) - np.asarray(steps["start_ns"], dtype=np.float64)
    device = np.asarray(steps["device_ns"], dtype=np.float64) if run.device_timed else interval
    return StepTimes(device=device, interval=interval)


def predicted_times(run: RecordedRun, cost_model: SplitCostModel) -> StepTimes:
    """The predictions of ``cost_model`` for the recorded steps, split as ``measured_times`` are.

    Steps are priced when they would have run: each takes the predicted time, pauses between them are as recorded. A
    cost model that remembers what ran before would else see pauses after all steps that it thinks shorter.

    Raises:
        CalibrationRangeError: a step that the cost model does not price.
    """
    features = list(recorded_features(run.record.steps))
    starts, ends = run.record.steps["start_ns"], run.record.steps["end_ns"]
    durations: list[int] = []
    now = 0
    for step, start, ended_before in zip(features, starts, (0, *ends[:-1]), strict=True):
        now += start - ended_before
        durations.append(cost_model.step_ns(step, now))
        now += durations[-1]
    interval = np.array(durations, dtype=np.float64)
    gap = np.array([cost_model.host_gap_ns(step) if run.device_timed else 0.0 for step in features])
    return StepTimes(device=interval - gap, interval=interval)


def recorded_features(steps: Columns) -> Iterator[StepFeatures]:
    """The features of every recorded step."""
    columns = {name: steps[name] for name in StepFeatures._fields}
    columns["graph_mode"] = [GraphMode(mode) for mode in steps["graph_mode"]]
    return map(StepFeatures._make, zip(*columns.values(), strict=True))


def step_errors(run: RecordedRun, measured: StepTimes, predicted: StepTimes) -> dict[str, dict[str, StepError]]:
    """Errors by graph mode ("all" first), then by part."""
    modes = np.asarray(run.record.steps["graph_mode"])
    groups = {"all": np.ones(len(modes), dtype=np.bool_)} | {str(mode): modes == mode for mode in np.unique(modes)}
    return {
        group: {name: _error(measured.part(name)[rows], predicted.part(name)[rows]) for name in _parts(run)}
        for group, rows in groups.items()
    }


def _parts(run: RecordedRun) -> tuple[str, ...]:
    return PARTS if run.device_timed else ("interval",)


def _error(measured: Floats, predicted: Floats) -> StepError:
    total, known = float(measured.sum()), measured > 0
    errors = np.abs(predicted - measured)[known] / measured[known] * 100
    return StepError(
        num_steps=len(measured),
        measured_ms=total / 1e6,
        predicted_ms=float(predicted.sum()) / 1e6,
        bias_percent=(float(predicted.sum()) / total - 1) * 100 if total > 0 else None,
        mape_percent=float(errors.mean()) if len(errors) else None,
        p95_percent=float(np.percentile(errors, 95)) if len(errors) else None,
    )
