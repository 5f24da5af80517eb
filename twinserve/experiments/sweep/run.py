"""Runs every unfinished point of a sweep, then summarises the stored results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinserve.experiments.backends.backend_run import Progress
from twinserve.experiments.errors import ConfigError, RunError
from twinserve.experiments.files.atomic import remove_leftovers
from twinserve.experiments.files.csv_file import CsvRow
from twinserve.experiments.identity import code_digest, identify
from twinserve.experiments.run import run_experiment
from twinserve.experiments.store.run_store import RunStore
from twinserve.experiments.store.sweep_folder import write_sweep
from twinserve.experiments.sweep.executors import TaskExecutor, make_executor
from twinserve.experiments.sweep.points import Point, Sweep
from twinserve.experiments.sweep.summary import seed_rows, summary_rows

RUN_AGAIN = "run the sweep again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One point to run and store, as sent to a worker."""

    run_id: str
    point: Point
    out: Path
    code: str
    reusable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """``error`` is None when the run is stored, under its id."""

    run_id: str
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class SweepOutcome:
    """``finished`` points with their results, in the order of the sweep; ``failed`` ones with one line each.

    ``replaced`` has a line for each stored run that could not be used, and so was made again.
    """

    num_found: int = 0
    replaced: list[str] = field(default_factory=list)
    finished: list[tuple[Point, Mapping[str, Any]]] = field(default_factory=list)
    failed: list[tuple[Point, str]] = field(default_factory=list)

    @property
    def rows(self) -> list[CsvRow]:
        return summary_rows(self.finished)


def run_sweep(sweep: Sweep, out: Path, on_progress: Progress | None = None) -> SweepOutcome:
    """Run what is not finished below ``out``, write summary.csv and failures.csv there.

    A point that fails is recorded and the others still run. After an interruption, even by SIGKILL, the next call runs
    only the missing points, and those whose files are not what was written.

    Raises:
        ConfigError: the output folder or the executor is wrong.
    """
    store = RunStore(out)
    tasks, errors = _tasks(sweep, out)
    wanted = {task.run_id: task for task in tasks if task is not None}
    for folder in (out, *map(store.folder, wanted)):
        remove_leftovers(folder)
    stored = {run_id: store.look(run_id) for run_id, task in wanted.items() if task.reusable}
    missing = [task for run_id, task in wanted.items() if run_id not in stored or stored[run_id].result is None]
    broken = _execute(make_executor(sweep.config.executor), missing, len(wanted), errors, on_progress)
    outcome = _collect(sweep, tasks, store, errors)
    outcome.num_found = len(wanted) - len(missing)
    outcome.replaced = [found.problem for found in stored.values() if found.problem is not None]
    _write(sweep, out, outcome)
    if broken is not None:
        raise broken
    return outcome


def _tasks(sweep: Sweep, out: Path) -> tuple[list[Task | None], dict[str, str]]:
    """A task per point, None where not even the identity could be found; and those errors by point label."""
    code = {backend: code_digest(backend) for backend in {point.experiment.config.backend for point in sweep.points}}
    tasks: list[Task | None] = []
    errors: dict[str, str] = {}
    unknown: set[str] = set()
    for point in sweep.points:
        own_code = code[point.experiment.config.backend]
        try:
            identity = identify(point.experiment, own_code)
            if not identity.reusable and identity.run_id in unknown:
                raise ConfigError("cannot be told from another point's; give its classes different names", key="engine")
        except ConfigError as error:
            errors[point.label()] = error.complaint
            tasks.append(None)
        else:
            unknown |= set() if identity.reusable else {identity.run_id}
            tasks.append(
                Task(
                    run_id=identity.run_id,
                    point=point,
                    out=out.absolute(),
                    code=own_code,
                    reusable=identity.reusable,
                )
            )
    return tasks, errors


def _execute(
    executor: TaskExecutor, tasks: Sequence[Task], total: int, errors: dict[str, str], on_progress: Progress | None
) -> RunError | None:
    """Run tasks, adding to ``errors`` by run id; returns what broke the executor itself, if anything did."""
    done = total - len(tasks)
    outcomes: Iterable[TaskOutcome] = executor(run_task, tasks) if tasks else ()
    try:
        for outcome in outcomes:
            done += 1
            if outcome.error is not None:
                errors[outcome.run_id] = outcome.error
            if on_progress is not None:
                on_progress(done, total)
    except RunError as error:
        return error
    return None


def run_task(task: Task) -> TaskOutcome:
    """Run one point; any error becomes its outcome, so that the other points still run."""
    try:
        finished = run_experiment(task.point.experiment, task.out, code=task.code)
    except ConfigError as error:
        return TaskOutcome(run_id=task.run_id, error=error.complaint)
    except Exception as error:  # a policy of the user's may raise anything
        return TaskOutcome(run_id=task.run_id, error=f"{type(error).__name__}: {error}")
    changed = finished.run_id != task.run_id
    return TaskOutcome(run_id=task.run_id, error=f"an input file changed; {RUN_AGAIN}" if changed else None)


def _collect(sweep: Sweep, tasks: Sequence[Task | None], store: RunStore, errors: Mapping[str, str]) -> SweepOutcome:
    outcome = SweepOutcome()
    for point, task in zip(sweep.points, tasks, strict=True):
        key = point.label() if task is None else task.run_id
        result = None if task is None or key in errors else store.look(task.run_id).result
        if result is None:
            outcome.failed.append((point, errors.get(key, f"was not run; {RUN_AGAIN}")))
        else:
            outcome.finished.append((point, result))
    return outcome


def _write(sweep: Sweep, out: Path, outcome: SweepOutcome) -> None:
    several_seeds = sweep.config.seeds is not None and len(sweep.config.seeds) > 1
    over_seeds = seed_rows(outcome.finished) if several_seeds else []
    failures = [{**point.settings, "error": error} for point, error in outcome.failed]
    write_sweep(out, outcome.rows, over_seeds, failures)
