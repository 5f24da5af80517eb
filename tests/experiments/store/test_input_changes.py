"""No result is stored under an id that was made of other inputs, whenever these change and whether or not they stay."""

from __future__ import annotations

import io
import os
import sys
from itertools import combinations
from pathlib import Path

import pytest

from tests.experiments.helpers.small_experiments import small
from twinserve.experiments.config.catalog import packaged_configs
from twinserve.experiments.config.load import experiment_of
from twinserve.experiments.errors import ConfigError, RunError
from twinserve.experiments.identity import code_digest, identify
from twinserve.experiments.run import run_experiment, run_in_memory
from twinserve.experiments.store.run_store import RunStore
from twinserve.experiments.sweep.points import sweep_of
from twinserve.experiments.sweep.run import run_sweep

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,{0},4\n"
WINDOWS = "0,{0},1,Gamma,0.9,0.5\n"
DATASET = '{{"0": {{"input_tokens": "{{9: 1.0}}", "output_tokens": "{{4: 1.0}}"}}}}'
POLICY = """from twinserve.sched_core.policies.composition import {0}
class P({0}):
    pass
"""
OLD = 1_000_000_000


def trace(folder: Path):
    return folder / "trace.csv", (TRACE.format(9), TRACE.format(7)), {"workload": _trace("trace.csv")}


def servegen(folder: Path):
    (folder / "chunk-1-dataset.json").write_text(DATASET.format())
    section = {"kind": "servegen", "path": str(folder), "duration_s": 5}
    return folder / "chunk-1-trace.csv", (WINDOWS.format(1), WINDOWS.format(2)), {"workload": section}


def hardware(folder: Path):
    text = (packaged_configs() / "hardware" / "rtx-4090.yaml").read_text()
    cost_model = {"kind": "roofline", "hardware": str(folder / "gpu.yaml")}
    return folder / "gpu.yaml", (text, text + "\n"), {"sim": {"cost_model": cost_model}}


def model(folder: Path):
    text = (packaged_configs() / "models" / "qwen3-8b.yaml").read_text()
    sections = {"model": {"name": str(folder / "model.yaml")}, "sim": _roofline()}
    return folder / "model.yaml", (text, text + "\n"), sections


def calibration(folder: Path):
    found = sorted((packaged_configs() / "calibrations").glob("*.yaml"))[0].read_text()
    cost_model = {"kind": "calibration", "file": str(folder / "calibration.yaml")}
    return folder / "calibration.yaml", (found, found + "\n"), {"sim": {"cost_model": cost_model}}


def policy(folder: Path):
    sections = {"engine": {**small()["engine"], "policy": "policy_that_changes:P"}}
    return folder / "policy_that_changes.py", (POLICY.format("Mixed"), POLICY.format("Static")), sections


INPUTS = (trace, servegen, hardware, model, calibration, policy)


def _trace(path):
    return {"kind": "trace", "format": "azure", "path": path}


def _roofline():
    return {"cost_model": {"kind": "roofline", "hardware": "rtx-4090"}}


class Moments:
    """Every question about ``path``, and every opening of it, in the order of a run; at some of them it is replaced."""

    def __init__(self, monkeypatch, path: Path, contents):
        self.path, self.contents, self.count, self.swaps = path, contents, 0, {}
        self._others = 0
        for module, name in ((io, "open"), (os, "stat")):
            monkeypatch.setattr(module, name, self._watched(getattr(module, name)))

    def begin(self, swaps) -> None:
        self.count, self.swaps = 0, swaps
        self.put(0, OLD)

    def put(self, number: int, time_s: int) -> None:
        """Another file takes the name, as an editor or a download does it."""
        other = self.path.with_name(f"other-{self._others}")
        self._others += 1
        with open(other, "w") as file:
            file.write(self.contents[number])
        os.utime(other, (time_s, time_s))
        other.replace(self.path)
        sys.path_importer_cache.clear()

    def _watched(self, ask):
        def watched(place, *more, **options):
            if str(place) == str(self.path):
                if self.count in self.swaps:
                    self.put(self.swaps[self.count], OLD + 1 + self.count)
                self.count += 1
            return ask(place, *more, **options)

        return watched


@pytest.fixture
def moments(monkeypatch, tmp_path):
    def moments(kind):
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        path, contents, sections = kind(tmp_path)
        return Moments(monkeypatch, path, contents), small(**sections)

    yield moments
    sys.modules.pop("policy_that_changes", None)


def attempt(data, folder: Path, out: Path):
    sys.modules.pop("policy_that_changes", None)
    try:
        return run_experiment(experiment_of(data, source="text", base_dir=folder), out, code="code")
    except ConfigError as error:
        return error


@pytest.mark.parametrize("kind", INPUTS)
def test_a_swap_at_any_moment_never_stores_a_result_under_the_wrong_id(moments, tmp_path, kind):
    swapped, data = moments(kind)
    right = {}
    for number in (0, 1):
        swapped.begin({})
        swapped.put(number, OLD)
        found = attempt(data, tmp_path, tmp_path / f"right-{number}")
        right[found.run_id] = found.result
    num_moments = swapped.count
    assert num_moments >= 3
    assert len(right) == 2
    schedules = [{at: 1} for at in range(num_moments)]
    schedules += [{first: 1, then: 0} for first, then in combinations(range(num_moments), 2)]
    stored = refused = 0
    for number, swaps in enumerate(schedules):
        swapped.begin(swaps)
        outcome = attempt(data, tmp_path, tmp_path / f"out-{number}")
        if isinstance(outcome, ConfigError):
            refused += 1
            assert not list((tmp_path / f"out-{number}").glob("*/result.json"))
        else:
            stored += 1
            assert outcome.result == right[outcome.run_id]
    assert refused
    assert stored


def test_a_run_whose_input_changed_says_so_and_stores_nothing(tmp_path, monkeypatch):
    path, (before, after), sections = trace(tmp_path)
    path.write_text(before)
    experiment = experiment_of(small(**sections), source="text", base_dir=tmp_path)
    from twinserve.experiments import run as module

    build = module.build_requests

    def swap(experiment):
        path.write_text(after)
        return build(experiment)

    monkeypatch.setattr(module, "build_requests", swap)
    with pytest.raises(RunError, match=r"^text: workload\.0: changed while the run used it.*; run it again$"):
        run_experiment(experiment, tmp_path / "out")
    path.write_text(before)
    with pytest.raises(RunError, match="changed while"):
        run_in_memory(experiment)
    assert not list((tmp_path / "out").glob("*/*.parquet"))


def test_an_imported_module_whose_file_changed_is_not_taken_for_the_new_one(moments, tmp_path):
    swapped, data = moments(policy)
    swapped.begin({})
    run_experiment(experiment_of(data, source="text", base_dir=tmp_path), tmp_path / "out")
    swapped.put(1, OLD + 5)
    with pytest.raises(RunError, match=r"engine\.policy: the file of module policy_that_changes changed after"):
        run_experiment(experiment_of(data, source="text", base_dir=tmp_path), tmp_path / "out")


@pytest.mark.parametrize("kind", ["serial", "processes"])
def test_points_of_a_sweep_whose_input_changes_meanwhile_are_run_again(tmp_path, monkeypatch, kind):
    path, (before, after), sections = trace(tmp_path)
    path.write_text(before)
    data = {"base": small(**sections), "seeds": [0, 1, 2], "executor": {"kind": kind, "workers": 2}}
    sweep = sweep_of(data, source="text", base_dir=tmp_path)
    from twinserve.experiments.sweep import run as module

    execute = module._execute

    def swap(*arguments):
        path.write_text(after)
        return execute(*arguments)

    monkeypatch.setattr(module, "_execute", swap)
    outcome = run_sweep(sweep, tmp_path / "out")
    assert [error for _, error in outcome.failed] == ["an input file changed; run the sweep again"] * 3
    monkeypatch.setattr(module, "_execute", execute)
    assert len(run_sweep(sweep, tmp_path / "out").finished) == 3
    code = code_digest("sim")
    for point in sweep.points:
        assert RunStore(tmp_path / "out").look(identify(point.experiment, code).run_id).result
