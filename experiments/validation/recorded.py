"""A recorded real run, with all that is needed to simulate it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.build import build_requests
from experiments.config import ExperimentConfig
from experiments.errors import ConfigError
from experiments.identity import digest
from experiments.load import Experiment, load_experiment
from experiments.overrides import Override
from experiments.parquet import DECISION_COLUMNS
from experiments.plots.run_folder import is_run_folder, read_run_folder
from experiments.store import CONFIG, MANIFEST, RESULT
from experiments.validation.files import read_json, read_lists
from experiments.workloads import Workload, input_files
from sched_core.dispatch import CaptureSizes, GraphMode
from sched_core.record import STEP_COLUMNS, Columns, RunRecord
from sim_backend.replay import ReplayCostModel

DECISIONS = "decisions.parquet"
REQUEST_COLUMNS = (
    *("request_id", "prompt_len", "arrival_ns", "sent_ns", "first_scheduled_ns", "first_token_ns", "last_token_ns"),
    *("finish_ns", "output_len", "num_cached_tokens", "finish_reason", "refusal"),
)
"""What is read of requests.parquet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """``decisions`` is the decision log, None where the run kept none; ``num_blocks`` and ``capture_sizes`` are what
    the engine had on its device."""

    folder: Path
    run_id: str
    experiment: Experiment
    workload: Workload
    record: RunRecord
    decisions: Columns | None
    num_blocks: int
    capture_sizes: CaptureSizes
    manifest: Mapping[str, Any]

    @property
    def config(self) -> ExperimentConfig:
        return self.experiment.config

    @property
    def device_timed(self) -> bool:
        """Whether every step has a measured span on the device."""
        return None not in self.record.steps["device_ns"]


def read_recorded_run(folder: Path, overrides: Sequence[Override] = ()) -> RecordedRun:
    """The finished real run in ``folder``; ``overrides`` change its configuration, such as where its trace is now.

    Raises:
        ConfigError: ``folder`` is not that of a finished real run, a file is damaged, or the workload's files are
            missing or not those of the run.
    """
    experiment = _experiment(folder, overrides)
    result, manifest = read_json(folder / RESULT), read_json(folder / MANIFEST)
    record = read_run_folder(folder).record
    _check_record(record, folder)
    with experiment.blamed():
        _check_inputs(experiment, manifest)
        workload = build_requests(experiment)
    return RecordedRun(
        folder=folder,
        run_id=str(result.get("run_id")),
        experiment=experiment,
        workload=workload,
        record=record,
        decisions=_decisions(folder),
        num_blocks=_num_blocks(manifest, folder),
        capture_sizes=_capture_sizes(manifest, folder),
        manifest=manifest,
    )


def _experiment(folder: Path, overrides: Sequence[Override]) -> Experiment:
    if not (folder / CONFIG).is_file():
        message = f"is not the folder of a run ({CONFIG} is missing); give OUT/<run id>, or a folder of such folders"
        raise ConfigError(message, file=folder)
    experiment = load_experiment(str(folder / CONFIG), overrides)
    if experiment.config.backend != "real":
        message = "is a simulated run; give the folder of a `twinserve run --backend real --decisions`"
        raise ConfigError(message, file=folder, key="backend")
    if not (folder / RESULT).is_file() or not is_run_folder(folder):
        raise ConfigError(f"the run is not finished ({RESULT} is missing); run it again", file=folder)
    return experiment


def _check_record(record: RunRecord, folder: Path) -> None:
    _require_columns(record.tokens, ("request_id", "time_ns"), folder / "tokens.parquet")
    _require_columns(record.requests, REQUEST_COLUMNS, folder / "requests.parquet")
    path = folder / "steps.parquet"
    _require_columns(record.steps, STEP_COLUMNS, path)
    steps = record.steps
    if not len(steps["step_id"]):
        raise ConfigError("holds no step; there is nothing to validate", file=path)
    try:
        ReplayCostModel(list(zip(steps["start_ns"], steps["end_ns"], strict=True)))
        list(map(GraphMode, steps["graph_mode"]))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"holds no possible run: {error}; run the experiment again", file=path) from error


def _check_inputs(experiment: Experiment, manifest: Mapping[str, Any]) -> None:
    known = manifest.get("inputs") or {}
    for number, path in enumerate(input_files(experiment.config.workload, experiment.base_dir)):
        recorded = known.get(f"workload.{number}")
        if recorded is not None and digest(path, "workload") != recorded:
            message = f"{path} is not the file that the run read (its digest differs); name that one with --set"
            raise ConfigError(message, key="workload")


def _decisions(folder: Path) -> Columns | None:
    path = folder / DECISIONS
    return read_lists(path, DECISION_COLUMNS) if path.is_file() else None


def _require_columns(columns: Columns, names: Sequence[str], path: Path) -> None:
    missing = [name for name in names if name not in columns]
    if missing:
        raise ConfigError(f"has no column {', '.join(missing)}; is it from a run of this version?", file=path)


def _num_blocks(manifest: Mapping[str, Any], folder: Path) -> int:
    count = manifest.get("num_blocks")
    if type(count) is not int or count < 1:
        raise ConfigError(f"is {count!r}; should be the number of KV blocks", file=folder / MANIFEST, key="num_blocks")
    return count


def _capture_sizes(manifest: Mapping[str, Any], folder: Path) -> CaptureSizes:
    sizes = manifest.get("capture_sizes") or {}
    try:
        return CaptureSizes(**{kind: tuple(int(size) for size in values) for kind, values in sizes.items()})
    except (AttributeError, TypeError, ValueError) as error:
        message = f"is {sizes!r}; should be token counts under decode and mixed"
        raise ConfigError(message, file=folder / MANIFEST, key="capture_sizes") from error
