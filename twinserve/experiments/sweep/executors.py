"""Executors run the points of a sweep: this process, local processes, Dask or Ray.

An executor is a function ``execute(task, items) -> iterator of results``, in any order. ``task`` must be picklable and
must not raise: what goes wrong with one item is part of its result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from twinserve.experiments.errors import ConfigError, RunError
from twinserve.experiments.sweep.sweep_config import ExecutorSection
from twinserve.experiments.sweep.workers import WorkerDiedError, run_on_workers

Item = TypeVar("Item")
Result = TypeVar("Result")


class TaskExecutor(Protocol):
    """Runs ``task`` on every item and yields results as they come."""

    def __call__(self, task: Callable[[Item], Result], items: Sequence[Item], /) -> Iterator[Result]: ...


def make_executor(section: ExecutorSection) -> TaskExecutor:
    """The executor that a sweep asks for.

    Raises:
        ConfigError: its library is not installed, or there is no cluster at the address.
    """
    match section.kind:
        case "serial":
            return in_this_process
        case "processes":
            return partial(in_processes, workers=section.workers)
        case "dask":
            return partial(on_dask, workers=section.workers, address=section.address)
        case "ray":
            return partial(on_ray, workers=section.workers, address=section.address)


def in_this_process(task: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """One after another."""
    return map(task, items)


def in_processes(task: Callable[[Item], Result], items: Sequence[Item], *, workers: int | None) -> Iterator[Result]:
    """On local processes, which live through the whole sweep so that short points do not pay for imports.

    They end when it is interrupted, and soon after it when it is killed.
    """
    from joblib import cpu_count

    try:
        yield from run_on_workers(task, items, workers or cpu_count())
    except WorkerDiedError as error:
        message = "a worker process died (out of memory?); run the sweep again, finished runs are kept"
        raise RunError(message, key="executor") from error


def on_dask(
    task: Callable[[Item], Result], items: Sequence[Item], *, workers: int | None, address: str | None
) -> Iterator[Result]:
    """On the Dask cluster at ``address``, which shares the output folder, or on a local one made for this sweep."""
    distributed = _library("distributed", "dask")
    options: dict[str, Any] = {"address": address} if address else {"n_workers": workers, "threads_per_worker": 1}
    with _connected("dask", distributed.Client, options) as client:
        for future in distributed.as_completed(client.map(task, items, pure=False)):
            yield future.result()


def on_ray(
    task: Callable[[Item], Result], items: Sequence[Item], *, workers: int | None, address: str | None
) -> Iterator[Result]:
    """On the Ray cluster at ``address``, which shares the output folder, or on a local one made for this sweep."""
    ray = _library("ray", "ray")
    options: dict[str, Any] = {"address": address} if address else {"num_cpus": workers}
    with _connected("ray", ray.init, options):
        remote = ray.remote(task)
        pending = [remote.remote(item) for item in items]
        while pending:
            done, pending = ray.wait(pending)
            yield from ray.get(done)


def _connected(kind: str, connect: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    try:
        return connect(**options)
    except (OSError, ValueError) as error:
        where = options.get("address", "this machine")
        raise ConfigError(f"no {kind} cluster at {where} ({error}); check the address", key="executor") from error


def _library(name: str, extra: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        message = f"the {extra} executor needs {name}, which is not installed; pip install 'twinserve[{extra}]'"
        raise ConfigError(f"{message}, or use kind: processes", key="executor.kind") from error
