"""Runs one experiment and stores its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from twinserve.experiments.backends.backend_run import BackendRun, Progress
from twinserve.experiments.backends.run import build_requests, run_backend
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import ConfigError, RunError
from twinserve.experiments.identity import Identity, code_digest, identify
from twinserve.experiments.manifest import describe_end, describe_start
from twinserve.experiments.result import make_result
from twinserve.experiments.settings.input_paths import map_paths
from twinserve.experiments.store.run_store import About, RunStore
from twinserve.run_core.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A stored run; ``was_there`` when an earlier run of the same id was found instead of running again."""

    run_id: str
    folder: Path
    result: Mapping[str, Any]
    was_there: bool = False


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    force: bool = False,
    check: bool = False,
    code: str | None = None,
    on_progress: Progress | None = None,
) -> FinishedRun:
    """Run and store an experiment below ``out``, or find it finished there.

    ``force`` runs it again, ``check`` verifies the engine's invariants at every step, ``code`` is a
    ``code_digest`` computed before.

    Raises:
        ConfigError: the configuration, an input file or the output folder is wrong.
        RunError: the run began and failed; what it wrote is kept.
    """
    identity = identify(experiment, code or code_digest(experiment.config.backend))
    store = RunStore(out)
    known = store.find(identity.run_id) if identity.reusable and not force else None
    if known is not None:
        folder = store.folder(identity.run_id)
        return FinishedRun(run_id=identity.run_id, folder=folder, result=known, was_there=True)
    with experiment.errors_name_source():
        return _run(experiment, identity, store, check, on_progress)


def _run(
    experiment: Experiment, identity: Identity, store: RunStore, check: bool, on_progress: Progress | None
) -> FinishedRun:
    run_id = identity.run_id
    began = monotonic()
    workload = build_requests(experiment)
    start = describe_start(experiment, identity)
    config = resolved_config(experiment)
    store.begin(run_id, About(config, start))
    run = run_backend(experiment, workload, check=check, on_progress=on_progress)
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
    identity = identify(experiment, code_digest(experiment.config.backend))
    with experiment.errors_name_source():
        workload = build_requests(experiment)
        run = run_backend(experiment, workload, check=check, on_progress=on_progress)
        if run.error is not None:
            raise _error_of(run) from run.error
        return make_result(experiment.config, identity.run_id, workload, run), run.record


def _error_of(run: BackendRun, remains: str = "") -> BaseException:
    """The error of a run that ended early; an interrupt and a lack of memory stay what they are."""
    if isinstance(run.error, KeyboardInterrupt | MemoryError):
        return run.error
    return RunError(f"{run.reason}{remains}")


def resolved_config(experiment: Experiment) -> dict[str, Any]:
    """The whole configuration in plain values, defaults included and paths absolute."""
    resolved: dict[str, Any] = map_paths(experiment.config.model_dump(), experiment.base_dir, str)
    return resolved
