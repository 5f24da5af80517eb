"""A sweep finishes what is missing, says what failed, and summarises what is stored."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from tests.experiments.helpers.small_experiments import CommandLine, small, write
from twinserve.experiments.sweep import run as sweep_module

MATRIX = {"engine.policy": ["mixed", "static"], "engine.max_num_batched_tokens": [32, 64]}


@pytest.fixture
def sweep(capsys, tmp_path):
    command_line = CommandLine(capsys)

    def sweep(data, out="out", *arguments):
        path = write(tmp_path, {"base": small(), "report": {"plots": False}, **data}, "sweep.yaml")
        return command_line("sweep", path, "--out", tmp_path / out, *arguments)

    return sweep


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_summary_has_a_row_per_point_with_swept_keys_and_figures(sweep, tmp_path):
    answer = sweep({"matrix": MATRIX}, "out", "--executor", "serial")
    assert answer.code == 0
    assert "4 of 4 points finished; summary in " in answer.out
    summary = rows(tmp_path / "out" / "summary.csv")
    assert [(row["engine.policy"], row["engine.max_num_batched_tokens"]) for row in summary] == [
        ("mixed", "32"),
        ("mixed", "64"),
        ("static", "32"),
        ("static", "64"),
    ]
    for row in summary:
        result = json.loads((tmp_path / "out" / row["run_id"] / "result.json").read_text())
        assert float(row["p99_ttft_ms"]) == result["p99_ttft_ms"]


def test_every_executor_gives_the_same_summary(sweep, tmp_path):
    for kind in ("serial", "processes"):
        assert sweep({"matrix": MATRIX, "executor": {"workers": 2}}, kind, "--executor", kind).code == 0
    serial, processes = ((tmp_path / kind / "summary.csv").read_bytes() for kind in ("serial", "processes"))
    assert serial == processes


def test_only_what_is_missing_is_run(sweep, tmp_path, monkeypatch):
    data = {"matrix": MATRIX, "executor": {"kind": "serial"}}
    sweep(data)
    summary = (tmp_path / "out" / "summary.csv").read_bytes()
    lost = rows(tmp_path / "out" / "summary.csv")[1]["run_id"]
    (tmp_path / "out" / lost / "result.json").unlink()
    finished = []
    run = sweep_module.run_experiment
    monkeypatch.setattr(sweep_module, "run_experiment", lambda *a, **o: finished.append(run(*a, **o)) or finished[-1])
    answer = sweep(data)
    assert [done.run_id for done in finished] == [lost]
    assert "4 of 4 points finished, 3 of them were already there" in answer.out
    assert (tmp_path / "out" / "summary.csv").read_bytes() == summary


def test_equal_points_are_run_once_and_both_summarised(sweep, tmp_path):
    sweep({"include": [{"seed": 1}, {"seed": 1}], "executor": {"kind": "serial"}})
    summary = rows(tmp_path / "out" / "summary.csv")
    assert len(summary) == 2
    assert len(list((tmp_path / "out").glob("*/result.json"))) == 1


def test_a_failing_point_is_recorded_and_the_others_go_on(sweep, tmp_path):
    data = {"matrix": {"engine.num_gpu_blocks_override": [None, 64]}, "executor": {"kind": "serial"}}
    answer = sweep(data)
    assert answer.code == 1
    assert answer.line.startswith("failed: engine.num_gpu_blocks_override=None: ")
    (failure,) = rows(tmp_path / "out" / "failures.csv")
    assert "does not know the memory" in failure["error"]
    assert len(rows(tmp_path / "out" / "summary.csv")) == 1


def test_a_missing_input_file_fails_its_points_only(sweep, tmp_path):
    trace = {"kind": "trace", "format": "azure", "path": "no.csv"}
    answer = sweep({"include": [{"workload": trace}, {"seed": 1}], "executor": {"kind": "serial"}})
    assert answer.code == 1
    assert "no.csv" in answer.line
    assert len(rows(tmp_path / "out" / "summary.csv")) == 1


def test_a_policy_that_raises_fails_its_point_only(sweep, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = "class Bad:\n    def compose(self, step):\n        raise ZeroDivisionError('oops')\n"
    (tmp_path / "policy_that_raises.py").write_text(source)
    policies = ["mixed", "policy_that_raises:Bad"]
    answer = sweep({"matrix": {"engine.policy": policies}, "executor": {"kind": "serial"}})
    assert answer.code == 1
    failed = "failed: engine.policy=policy_that_raises:Bad: ZeroDivisionError: oops (policy_that_raises.py, line 3); "
    assert answer.line.startswith(failed + "what had finished is in ")


def test_failures_of_the_past_are_forgotten_when_they_are_mended(sweep, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "failures.csv").write_text("error\nold\n")
    sweep({"matrix": {"seed": [0]}, "executor": {"kind": "serial"}})
    assert not (out / "failures.csv").exists()


def test_a_worker_that_dies_is_one_line_and_what_finished_is_summarised(sweep, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = "import os\n\n\nclass Deadly:\n    def compose(self, step):\n        os._exit(1)\n"
    (tmp_path / "policy_that_kills.py").write_text(source)
    deadly = {"engine.policy": "policy_that_kills:Deadly"}
    sweep({"include": [{"seed": 1}], "executor": {"kind": "serial"}})
    answer = sweep({"include": [{"seed": 1}, deadly, {**deadly, "seed": 2}], "executor": {"workers": 2}})
    assert answer.code == 1
    assert "a worker process died" in answer.line
    assert len(rows(tmp_path / "out" / "summary.csv")) == 1
    assert len(rows(tmp_path / "out" / "failures.csv")) == 2


def test_seeds_are_averaged_as_figures_not_as_requests(sweep, tmp_path):
    sweep({"matrix": {"engine.max_num_seqs": [2, 4]}, "seeds": [0, 1, 2], "executor": {"kind": "serial"}})
    runs = pd.read_csv(tmp_path / "out" / "summary.csv")
    means = pd.read_csv(tmp_path / "out" / "summary_over_seeds.csv")
    expected = runs.groupby("engine.max_num_seqs")["p99_ttft_ms"].mean()
    assert means["p99_ttft_ms"].tolist() == pytest.approx(expected.tolist())
    assert means["num_seeds"].tolist() == [3, 3]
    assert (means["p99_ttft_ms_low"] <= means["p99_ttft_ms"]).all()


def test_plots_are_drawn_when_asked_for(sweep, tmp_path):
    answer = sweep({"matrix": MATRIX, "executor": {"kind": "serial"}}, "out", "--plots")
    assert answer.code == 0
    assert list((tmp_path / "out" / "plots").glob("*.png"))


def test_an_output_folder_that_cannot_be_made_is_one_line(sweep, tmp_path):
    (tmp_path / "file").touch()
    answer = sweep({"matrix": MATRIX, "executor": {"kind": "serial"}}, "file")
    assert answer.code == 2
    assert "cannot be written" in answer.line


@pytest.mark.parametrize(("kind", "library"), [("dask", "distributed"), ("ray", "ray")])
def test_an_executor_without_its_library_is_one_line(sweep, monkeypatch, kind, library):
    import sys

    monkeypatch.setitem(sys.modules, library, None)
    answer = sweep({"matrix": MATRIX}, "out", "--executor", kind)
    assert answer.code == 2
    assert f"needs {library}, which is not installed; pip install 'twinserve[{kind}]'" in answer.line
