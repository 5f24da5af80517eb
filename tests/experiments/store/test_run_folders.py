"""A run is stored once, whole, under an id that stands for everything that decides it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.experiments.helpers.small_experiments import small
from twinserve.experiments.config.load import experiment_of, load_experiment
from twinserve.experiments.errors import ConfigError, RunError
from twinserve.experiments.identity import code_digest, identify
from twinserve.experiments.run import run_experiment
from twinserve.run_core.outcome import RunOutcome
from twinserve.sched_core.errors import RunStopped, StuckError

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,{tokens},4\n"


@pytest.fixture
def run(tmp_path):
    def run(data, **options):
        return run_experiment(experiment_of(data, source="text", base_dir=tmp_path), tmp_path / "out", **options)

    return run


def run_id(data, base_dir: Path, code: str = "code") -> str:
    return identify(experiment_of(data, source="text", base_dir=base_dir), code).run_id


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def traced(folder: Path, tokens: int, name: str = "trace.csv"):
    (folder / name).write_text(TRACE.format(tokens=tokens))
    return small(workload={"kind": "trace", "format": "azure", "path": name})


def test_a_run_folder_holds_all_files_and_no_other(run):
    finished = run(small())
    names = {"config.yaml", "manifest.json", "requests.parquet", "steps.parquet", "tokens.parquet", "result.json"}
    assert set(contents(finished.folder)) == names
    assert finished.folder.name == finished.run_id == finished.result["run_id"]


def test_the_same_run_gives_the_same_bytes_whatever_the_clock_says(run, tmp_path):
    first = contents(run(small()).folder)
    again = contents(run(small(), force=True).folder)
    del first["manifest.json"], again["manifest.json"]
    assert first == again


def test_a_finished_run_is_found_again(run, monkeypatch):
    first = run(small())
    monkeypatch.setattr("twinserve.experiments.run.run_backend", pytest.fail)
    again = run(small())
    assert (first.was_there, again.was_there) == (False, True)
    assert again.folder == first.folder
    assert again.result == json.loads((first.folder / "result.json").read_text())


def test_a_run_without_a_result_is_run_again(run):
    folder = run(small()).folder
    (folder / "result.json").unlink()
    assert not run(small()).was_there
    assert (folder / "result.json").exists()


def test_a_stored_configuration_can_be_run_again_from_its_folder(run, tmp_path):
    finished = run(traced(tmp_path, 9))
    stored = load_experiment(str(finished.folder / "config.yaml"))
    assert Path(stored.config.workload.path) == tmp_path / "trace.csv"
    assert identify(stored, code_digest("sim")).run_id == finished.run_id


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"repeat": 1},
        {"engine__policy": "static"},
        {"engine__num_gpu_blocks_override": 65},
        {"sim__cost_model__base_ms": 5.5},
        {"workload__num_prompts": 7},
        {"metrics": {"percentiles": [99]}},
        {"model": {"name": "another"}},
    ],
)
def test_whatever_decides_a_run_changes_its_id(tmp_path, changes):
    assert run_id(small(**changes), tmp_path) != run_id(small(), tmp_path)


@pytest.mark.parametrize("changes", [{"real": {"attention_backend": "fa2"}}, {"model": {"path": "/models/x"}}])
def test_the_other_backends_settings_do_not(tmp_path, changes):
    assert run_id(small(**changes), tmp_path) == run_id(small(), tmp_path)


def test_the_code_and_the_contents_of_input_files_change_the_id_but_not_their_place(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    original = run_id(traced(tmp_path, 9), tmp_path)
    assert run_id(traced(tmp_path, 9), tmp_path, code="other") != original
    assert run_id(traced(other, 9, "renamed.csv"), other) == original
    assert run_id(traced(tmp_path, 10), tmp_path) != original


def test_a_policys_own_file_counts_as_input(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = "from twinserve.sched_core.policies.composition import Mixed\n\n\nclass Mine(Mixed):\n    pass\n"
    (tmp_path / "policy_of_a_user.py").write_text(source)
    data = small(engine__policy="policy_of_a_user:Mine")
    before = run_id(data, tmp_path)
    (tmp_path / "policy_of_a_user.py").write_text(source + "# changed\n")
    assert run_id(data, tmp_path) != before


def test_the_manifest_says_where_and_with_what(run, tmp_path):
    manifest = json.loads((run(traced(tmp_path, 9)).folder / "manifest.json").read_text())
    assert manifest["num_blocks"] == 64
    assert manifest["num_blocks_source"] == "engine.num_gpu_blocks_override"
    assert manifest["versions"]["numpy"]
    assert len(manifest["inputs"]) == 1
    assert {"started", "host", "code", "wall_time_s", "source"} <= manifest.keys()


def test_decisions_are_kept_on_request(run):
    finished = run(small(record={"decisions": True}))
    decisions = pq.read_table(finished.folder / "decisions.parquet").to_pydict()
    steps = pq.read_table(finished.folder / "steps.parquet").to_pydict()
    assert [sum(new) for new in decisions["num_new"]] == steps["num_tokens"]
    assert decisions["step_id"] == steps["step_id"]


def test_blocks_are_derived_from_memory_where_a_roofline_knows_it(run):
    data = small(sim={"cost_model": {"kind": "roofline", "hardware": "rtx-4090"}}, engine__num_gpu_blocks_override=None)
    assert run(data).result["num_blocks_source"] == "derived from memory"


def test_a_run_that_stops_midway_keeps_what_it_had(run, tmp_path, monkeypatch):
    from twinserve.sim_backend.linear import LinearCostModel

    prices = iter([1000, 1000, 1000])

    def three_steps(self, features, now):
        for price in prices:
            return price
        raise StuckError("requests wait and nothing is scheduled")

    monkeypatch.setattr(LinearCostModel, "step_ns", three_steps)
    with pytest.raises(RunError, match="nothing is scheduled; what had finished is in "):
        run(small())
    (folder,) = (tmp_path / "out").iterdir()
    assert pq.read_table(folder / "steps.parquet").num_rows == 3
    assert "error" in json.loads((folder / "manifest.json").read_text())
    assert not (folder / "result.json").exists()


def test_a_forced_run_that_fails_leaves_the_finished_one(run, monkeypatch):
    before = contents(run(small()).folder)

    def fail(session, cost_model):
        return session.outcome(StuckError("stuck"))

    monkeypatch.setattr("twinserve.sim_backend.driver.simulate", fail)
    with pytest.raises(RunError, match="stuck"):
        run(small(), force=True)
    (folder,) = Path(str(run(small()).folder.parent)).iterdir()
    assert contents(folder) == before


def test_a_missing_gpu_stack_is_one_line(run, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "twinserve.real_backend.build", None)
    with pytest.raises(ConfigError, match=r"^text: backend: the real backend cannot start .*pip install 'twinserve"):
        run(small(backend="real"))


def test_a_failing_real_engine_is_one_line_and_keeps_its_record(run, monkeypatch, tmp_path):
    import sys
    from types import SimpleNamespace

    def run_engine(_, *, recorder, **more):
        outcome = RunOutcome(record=recorder.finish(0, {}), error=RunStopped("no memory"))
        return SimpleNamespace(outcome=outcome, num_blocks=7, model=None, manifest={"gpu": "none"})

    monkeypatch.setitem(sys.modules, "twinserve.real_backend.build", SimpleNamespace(run_engine=run_engine))
    with pytest.raises(RunError, match="no memory; what had finished is in "):
        run(small(backend="real"))
    (folder,) = (tmp_path / "out").iterdir()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["gpu"], manifest["num_blocks"]) == ("none", 7)
