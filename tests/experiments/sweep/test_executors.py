"""Executors: the same results wherever tasks run; clusters are stood in for by fakes, and by Dask where installed."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

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
