"""Executors: the same results wherever tasks run; clusters are stood in for by fakes, and by Dask where installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from time import sleep
from types import SimpleNamespace

import pytest

from tests.paths import ROOT
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.sweep.executors import make_executor
from twinserve.experiments.sweep.sweep_config import ExecutorSection


def double(number):
    return 2 * number


def run(**section):
    return sorted(make_executor(ExecutorSection(**section))(double, [1, 2, 3]))


class FakeDask:
    """A cluster that finishes tasks in reverse order."""

    def __init__(self):
        self.options = None

    def Client(self, **options):  # noqa: N802 - Dask's name
        self.options = options
        done = [SimpleNamespace(result=lambda value=value: value) for value in (6, 4, 2)]
        return nullcontext(SimpleNamespace(map=lambda task, items, pure: done))

    def as_completed(self, futures):
        return iter(futures)


class FakeRay:
    """A cluster that finishes one task at a time."""

    def __init__(self):
        self.options = None

    def init(self, **options):
        self.options = options
        return nullcontext()

    def remote(self, task):
        return SimpleNamespace(remote=lambda item: (task, item))

    def wait(self, pending):
        return pending[-1:], pending[:-1]

    def get(self, done):
        return [task(item) for task, item in done]


@pytest.mark.parametrize("section", [{"kind": "serial"}, {"kind": "processes", "workers": 2}])
def test_local_executors_run_every_item(section):
    assert run(**section) == [2, 4, 6]


@pytest.mark.parametrize(("kind", "library", "fake"), [("dask", "distributed", FakeDask), ("ray", "ray", FakeRay)])
def test_cluster_executors_run_every_item_where_they_are_told(monkeypatch, kind, library, fake):
    cluster = fake()
    monkeypatch.setitem(sys.modules, library, cluster)
    assert run(kind=kind, address="head:1") == [2, 4, 6]
    assert cluster.options == {"address": "head:1"}
    assert run(kind=kind, workers=3) == [2, 4, 6]
    assert 3 in cluster.options.values()


def test_a_cluster_that_is_not_there_is_one_line(monkeypatch):
    def refuse(**_):
        raise OSError("timed out")

    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=refuse))
    with pytest.raises(ConfigError, match=r"executor: no dask cluster at head:1 \(timed out\)"):
        run(kind="dask", address="head:1")


@pytest.mark.slow
def test_dask_itself_runs_every_item():
    pytest.importorskip("distributed")
    assert run(kind="dask", workers=1) == [2, 4, 6]


SWEEPING = """
import sys, time
from pathlib import Path
from twinserve.experiments.sweep.executors import in_processes
def task(item):
    Path(item).touch()
    time.sleep(60)
def main():
    list(in_processes(task, [sys.argv[1] + f"/begun-{number}" for number in range(4)], workers=2))
main()
"""


@pytest.mark.parametrize(("number", "exit_status"), [(signal.SIGKILL, -9), (signal.SIGTERM, -15), (signal.SIGINT, -2)])
def test_workers_in_the_midst_of_a_task_end_with_whoever_runs_the_sweep(tmp_path, number, exit_status):
    parent = subprocess.Popen(
        [sys.executable, "-c", SWEEPING, str(tmp_path)], cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL
    )
    while len(list(tmp_path.glob("begun-*"))) < 2:
        assert parent.poll() is None
        sleep(0.01)
    os.kill(parent.pid, number)
    assert parent.wait(timeout=30) == exit_status
    for _ in range(1000):
        if not members(parent.pid):
            break
        sleep(0.01)
    assert not members(parent.pid)


def test_workers_leave_signals_to_whoever_runs_the_sweep():
    (blocked,) = make_executor(ExecutorSection(kind="processes", workers=1))(blocked_signals, [0])
    assert {signal.SIGINT, signal.SIGTERM} <= blocked
    assert not blocked_signals(0) & {signal.SIGINT, signal.SIGTERM}


def blocked_signals(_):
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_every_worker_serves_several_items_and_none_is_left(tmp_path):
    section = ExecutorSection(kind="processes", workers=2)
    pids = list(make_executor(section)(own_number, range(10)))
    assert len(pids) == 10
    assert len(set(pids)) <= 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_caller_who_wants_no_more_results_leaves_no_worker():
    results = make_executor(ExecutorSection(kind="processes", workers=2))(own_number, range(10))
    pid = next(results)
    results.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def own_number(_):
    return os.getpid()


def members(session):
    """Processes of a session that have not ended."""
    states = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            states.append(path.read_text().rpartition(")")[2].split())
    return [state for state in states if int(state[3]) == session and state[0] != "Z"]
