"""Runs one experiment and stores its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from twinserve.experiments.backends.backend_run import BackendRun, Progress
from twinserve.experiments.backends.real import run_real
from twinserve.experiments.backends.simulated import run_simulated
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import ConfigError, RunError
from twinserve.experiments.identity import code_digest
from twinserve.experiments.input_watch import InputWatch, watch_run
from twinserve.experiments.manifest import describe_end, describe_start
from twinserve.experiments.metrics.window import refuse_empty_positions
from twinserve.experiments.result import make_result
from twinserve.experiments.settings.input_paths import map_paths
from twinserve.experiments.store.run_store import About, RunStore, Stored
from twinserve.experiments.workloads import Workload, build_workload
from twinserve.run_core.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A stored run; ``was_there`` when an earlier run of the same id was found instead of running again.

    ``replaced`` says, in one line, what was wrong with the files of an earlier run that this one replaced.
    """

    run_id: str
    folder: Path
    result: Mapping[str, Any]
    was_there: bool = False
    replaced: str | None = None


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    force: bool = False,
    check: bool = False,
    code: str | None = None,
    on_progress: Progress | None = None,
) -> FinishedRun:
    """Run and store an experiment below ``out``, or find it finished there, with all its files whole.

    ``force`` runs it again, ``check`` verifies the engine's invariants at every step, ``code`` is a
    ``code_digest`` computed before.

    Raises:
        ConfigError: the configuration, an input file or the output folder is wrong.
        RunError: the run began and failed, and what it wrote is kept; or an input file changed meanwhile.
    """
    inputs = watch_run(experiment, code or code_digest(experiment.config.backend))
    run_id = inputs.identity.run_id
    store = RunStore(out)
    stored = store.look(run_id) if inputs.identity.reusable and not force else Stored()
    if stored.result is not None:
        return FinishedRun(run_id=run_id, folder=store.folder(run_id), result=stored.result, was_there=True)
    with experiment.errors_name_source():
        return replace(_run(experiment, inputs, store, check, on_progress), replaced=stored.problem)


def _run(
    experiment: Experiment, inputs: InputWatch, store: RunStore, check: bool, on_progress: Progress | None
) -> FinishedRun:
    run_id = inputs.identity.run_id
    began = monotonic()
    workload = build_requests(experiment)
    start = describe_start(experiment, inputs.identity)
    config = resolved_config(experiment)
    store.begin(run_id, About(config, start))
    run = run_backend(experiment, workload, check=check, on_progress=on_progress)
    inputs.check()
    about = About(config, describe_end(start, run, monotonic() - began))
    if run.error is not None:
        store.keep(run_id, about, run.record)
        raise _error_of(run, f"; what had finished is in {store.folder(run_id)}") from run.error
    try:
        result = make_result(experiment.config, run_id, workload, run)
    except ConfigError:  # nothing was measured
        store.keep(run_id, about, run.record)
        raise
    folder = store.finish(run_id, about, run.record, result)
    return FinishedRun(run_id=run_id, folder=folder, result=result)


def run_in_memory(
    experiment: Experiment, *, check: bool = False, on_progress: Progress | None = None
) -> tuple[dict[str, Any], RunRecord]:
    """The result and the record of an experiment, as ``run_experiment`` has them, with nothing written.

    Raises:
        ConfigError: the configuration or an input file is wrong.
        RunError: the run began and could not go on.
    """
    inputs = watch_run(experiment, code_digest(experiment.config.backend))
    with experiment.errors_name_source():
        workload = build_requests(experiment)
        run = run_backend(experiment, workload, check=check, on_progress=on_progress)
        inputs.check()
        if run.error is not None:
            raise _error_of(run) from run.error
        return make_result(experiment.config, inputs.identity.run_id, workload, run), run.record


def build_requests(experiment: Experiment) -> Workload:
    """The requests of an experiment, drawn from its seed and repeat.

    Raises:
        ConfigError: an input file is missing or bad, or no request is left, or none that is measured.
    """
    config = experiment.config
    workload = build_workload(
        config.workload,
        seed=config.seed,
        repeat=config.repeat,
        max_model_len=config.engine.max_model_len,
        base_dir=experiment.base_dir,
    )
    refuse_empty_positions(config.metrics, len(workload.requests))
    return workload


def run_backend(experiment: Experiment, workload: Workload, *, check: bool, on_progress: Progress | None) -> BackendRun:
    """Run the workload on the backend that the configuration names.

    Raises:
        ConfigError: something the backend needs is missing or wrong.
    """
    total = len(workload.requests)
    on_ended = None if on_progress is None else lambda done: on_progress(done, total)
    run = run_real if experiment.config.backend == "real" else run_simulated
    return run(experiment, workload, check, on_ended)


def _error_of(run: BackendRun, remains: str = "") -> BaseException:
    """The error of a run that ended early; an interrupt and a lack of memory stay what they are."""
    if isinstance(run.error, KeyboardInterrupt | MemoryError):
        return run.error
    return RunError(f"{run.reason}{remains}")


def resolved_config(experiment: Experiment) -> dict[str, Any]:
    """The whole configuration in plain values, defaults included and paths absolute."""
    resolved: dict[str, Any] = map_paths(experiment.config.model_dump(), experiment.base_dir, str)
    return resolved
