"""Reads a recorded real run with everything needed to simulate it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinserve.experiments.config.experiment import ExperimentConfig
from twinserve.experiments.config.load import Experiment, load_experiment
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.names import CONFIG, MANIFEST, RESULT, STEPS
from twinserve.experiments.files.probe import is_file
from twinserve.experiments.identity import digest
from twinserve.experiments.run import build_requests
from twinserve.experiments.settings.overrides import Override
from twinserve.experiments.store.manifest_facts import manifest_capture_sizes, manifest_count
from twinserve.experiments.store.run_folder import is_run_folder, read_decisions, read_manifest, read_run_folder
from twinserve.experiments.store.step_columns import StepColumns
from twinserve.experiments.workloads import Workload, workload_files
from twinserve.run_core.record import Columns, RunRecord
from twinserve.sched_core.dispatch import CaptureSizes
from twinserve.sim_backend.replay import ReplayCostModel


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


def read_recorded_run(folder: Path, overrides: Sequence[Override] = (), *, allow_imports: bool = False) -> RecordedRun:
    """The finished real run in ``folder``; ``overrides`` change its configuration, such as where its trace is now.

    The configuration of a received folder is data: a policy of its own is refused unless ``allow_imports``.

    Raises:
        ConfigError: ``folder`` is not that of a finished real run, a file is damaged, or the workload's files are
            missing or not those of the run.
    """
    experiment = _experiment(folder, overrides, allow_imports)
    run, manifest = read_run_folder(folder), read_manifest(folder)
    record = run.record
    _check_record(record, folder)
    with experiment.errors_name_source():
        _check_inputs(experiment, manifest)
        workload = build_requests(experiment)
    return RecordedRun(
        folder=folder,
        run_id=str(run.result.get("run_id")),
        experiment=experiment,
        workload=workload,
        record=record,
        decisions=read_decisions(folder),
        num_blocks=manifest_count(manifest, "num_blocks", folder / MANIFEST),
        capture_sizes=manifest_capture_sizes(manifest, folder / MANIFEST),
        manifest=manifest,
    )


def _experiment(folder: Path, overrides: Sequence[Override], allow_imports: bool) -> Experiment:
    if not is_file(folder / CONFIG):
        message = f"is not the folder of a run ({CONFIG} is missing); give OUT/<run id>, or a folder of such folders"
        raise ConfigError(message, file=folder)
    experiment = load_experiment(str(folder / CONFIG), overrides, allow_imports=allow_imports)
    if experiment.config.backend != "real":
        message = "is a simulated run; give the folder of a `twinserve run --backend real --decisions`"
        raise ConfigError(message, file=folder, key="backend")
    if not is_file(folder / RESULT) or not is_run_folder(folder):
        raise ConfigError(f"the run is not finished ({RESULT} is missing); run it again", file=folder)
    return experiment


def _check_record(record: RunRecord, folder: Path) -> None:
    path = folder / STEPS
    steps = StepColumns(path, record.steps)
    steps.counts(), steps.modes()
    steps.check_device_within(steps.numbers("end_ns") - steps.numbers("start_ns"))
    try:
        ReplayCostModel(list(zip(record.steps["start_ns"], record.steps["end_ns"], strict=True)))
    except ValueError as error:
        raise ConfigError(f"holds no possible run: {error}; run the experiment again", file=path) from error


def _check_inputs(experiment: Experiment, manifest: Mapping[str, Any]) -> None:
    known = manifest.get("inputs")
    if not isinstance(known, Mapping):
        return
    for number, path in enumerate(workload_files(experiment.config.workload, experiment.base_dir)):
        recorded = known.get(f"workload.{number}")
        if recorded is not None and digest(path, "workload") != recorded:
            message = f"{path} is not the file that the run read (its digest differs); name that one with --set"
            raise ConfigError(message, key="workload")
