"""Validates one real run: parity with its controls, errors of figures with their parts, errors of steps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from twinserve.experiments.backends.backend_run import Progress
from twinserve.experiments.errors import ConfigError, RunError
from twinserve.experiments.identity import code_digest
from twinserve.experiments.validation.controls import Control, run_controls
from twinserve.experiments.validation.cost_source import CostSource
from twinserve.experiments.validation.error_split import FigureError, split_errors
from twinserve.experiments.validation.figures import RATES
from twinserve.experiments.validation.parity import Parity, check_log, check_parity
from twinserve.experiments.validation.recorded import RecordedRun
from twinserve.experiments.validation.simulation import simulate_again
from twinserve.experiments.validation.step_times import (
    StepError,
    StepTimes,
    measured_times,
    predicted_times,
    step_errors,
)
from twinserve.run_core.record import RunRecord
from twinserve.sim_backend.calibration.calibrated import CalibrationRangeError, CalibrationRangeWarning

SCHEMA_VERSION = 1
OTHER_CODE = "the run was made by other code than this; if the scheduler has changed since, run it again"
UNTIMED = "no device was timed: the host gap counts as step time"
NO_LOG = "not checked: the run kept no decisions; run it with --decisions (a sweep: --set record.decisions=true)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The findings of one validation.

    ``parity`` is None where the run kept no decision log; ``steps`` are by graph mode and part.
    """

    run: RecordedRun
    cost_model: str
    parity: Parity | None
    controls: tuple[Control, ...]
    figures: Mapping[str, FigureError]
    steps: Mapping[str, Mapping[str, StepError]]
    measured: StepTimes
    predicted: StepTimes
    simulated: RunRecord
    warnings: tuple[str, ...]

    @property
    def failure(self) -> str | None:
        """Why the validation is not passed: other decisions, or a control that should have had others; else None."""
        if self.parity is not None and not self.parity.equal:
            return f"the replay decides otherwise: {self.parity.describe()}"
        blind = [control.name for control in self.controls if control.outcome == "stays equal"]
        return f"decisions stay equal with {', '.join(blind)}" if blind else None

    @property
    def mean_abs_error_percent(self) -> float | None:
        """Mean of the absolute errors of all figures that are known."""
        known = [abs(error) for error in self.errors.values()]
        return sum(known) / len(known) if known else None

    @property
    def errors(self) -> dict[str, float]:
        """The errors that are known, in percent; of the rates, whose errors are alike, the output throughput's only."""
        dropped = {*RATES} - {"output_throughput"}
        found = {name: figure.error_percent for name, figure in self.figures.items() if name not in dropped}
        return {name: error for name, error in found.items() if error is not None}

    def as_json(self) -> dict[str, Any]:
        """All of it in JSON's types."""
        parity = None if self.parity is None else {"equal": self.parity.equal, **asdict(self.parity)}
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": self.run.run_id,
            "label": self.run.config.name,
            "cost_model": self.cost_model,
            "num_blocks": self.run.num_blocks,
            "device_timed": self.run.device_timed,
            "parity": parity,
            "controls": [asdict(control) for control in self.controls],
            "mean_abs_error_percent": self.mean_abs_error_percent,
            "figures": {name: asdict(figure) for name, figure in self.figures.items()},
            "steps": {
                mode: {part: asdict(error) for part, error in parts.items()} for mode, parts in self.steps.items()
            },
            "warnings": list(self.warnings),
        }


def validate_run(run: RecordedRun, source: CostSource, on_progress: Progress | None = None) -> Validation:
    """Replay ``run``, simulate it freely with the cost model of ``source``, and compare.

    ``on_progress`` is told (stages done, stages in all).

    Raises:
        ConfigError: the cost model does not fit the run.
        RunError: the simulation failed.
    """
    report_progress = on_progress or (lambda _done, _total: None)
    source.build(run)  # what is wrong with it is said before the long work
    parity, controls = _compare_decisions(run)
    report_progress(1, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationRangeWarning)
        predicted = _predicted(run, source)
        simulated = _free_running(run, source)
    report_progress(2, 2)
    measured = measured_times(run)
    other_code = [OTHER_CODE] if parity is not None and not parity.equal and _is_of_other_code(run) else []
    untimed = [] if run.device_timed else [UNTIMED]
    notes = [*other_code, *source.misfits(run), *untimed, *(str(warning.message) for warning in caught)]
    return Validation(
        run=run,
        cost_model=source.name(run),
        parity=parity,
        controls=controls,
        figures=split_errors(run, measured, predicted, simulated),
        steps=step_errors(run, measured, predicted),
        measured=measured,
        predicted=predicted,
        simulated=simulated,
        warnings=tuple(dict.fromkeys(notes)),
    )


def _compare_decisions(run: RecordedRun) -> tuple[Parity | None, tuple[Control, ...]]:
    log = check_log(run)
    if log is None:
        return None, ()
    parity = check_parity(run, log)
    return parity, run_controls(run, log) if parity.equal else ()


def _is_of_other_code(run: RecordedRun) -> bool:
    return run.manifest.get("code") != code_digest("real")


def _predicted(run: RecordedRun, source: CostSource) -> StepTimes:
    try:
        return predicted_times(run, source.build(run))
    except CalibrationRangeError as error:
        raise ConfigError(str(error), file=run.folder) from error


def _free_running(run: RecordedRun, source: CostSource) -> RunRecord:
    simulated = simulate_again(run, source.build(run))
    if simulated.error is not None:
        raise RunError(f"the simulation stopped: {simulated.error}", file=run.folder)
    return simulated.record
