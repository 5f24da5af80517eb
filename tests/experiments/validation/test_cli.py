"""``twinserve validate``: what it prints and writes, exit codes, and one line for everything that is wrong."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest

from tests.experiments.helpers.real_runs import change_column, edit, run_real
from tests.experiments.helpers.small_experiments import write
from twinserve.experiments.settings.paths import packaged_configs
from twinserve.experiments.settings.yaml_loader import read_yaml
from twinserve.experiments.validation.figures import FIGURES
from twinserve.experiments.validation.validate import validate_run

CALIBRATION = "note-rtx-4090-v1"


def test_a_run_is_validated_and_all_numbers_are_kept(twinserve, eventful_run, tmp_path):
    answer = twinserve("validate", eventful_run, "--out", tmp_path)
    assert answer.code == 0
    assert "plans equal byte for byte (sha256 " in answer.out
    assert answer.out.count(": differs (") == 3
    found = json.loads((tmp_path / "validation.json").read_text())
    assert found["parity"]["equal"] is True
    assert found["cost_model"] == "linear"
    assert list(found["figures"]) == list(FIGURES)
    stored = json.loads((eventful_run / "result.json").read_text())
    real = {name: figure["real"] for name, figure in found["figures"].items()}
    assert real == {name: stored[name] for name in FIGURES}
    assert {path.name for path in tmp_path.iterdir()} == {"validate.png", "error_split.png", "validation.json"}


def test_the_same_run_gives_the_same_bytes_again(twinserve, eventful_run, tmp_path):
    for name in ("one", "other"):
        assert twinserve("validate", eventful_run, "--out", tmp_path / name).code == 0
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes()


def test_a_calibration_of_another_engine_is_used_with_warnings(twinserve, copied, tmp_path):
    calibration = read_yaml(packaged_configs() / "calibrations" / f"{CALIBRATION}.yaml")
    path = write(tmp_path, {**calibration, "covered": {"num_tokens": [1, 5]}}, "mine.yaml")
    answer = twinserve("validate", copied, "--calibration", path)
    assert answer.code == 0
    assert "warning: the calibration's attention_backend is flash-attn, the run's sdpa" in answer.err
    assert "is outside the covered 1..5; extrapolating" in answer.err
    found = json.loads((copied / "validation" / "mine" / "validation.json").read_text())
    assert found["cost_model"] == "mine"
    assert len(found["warnings"]) == answer.err.count("warning: ")


def test_a_run_without_decisions_has_errors_but_no_parity(twinserve, copied):
    (copied / "decisions.parquet").unlink()
    answer = twinserve("validate", copied)
    assert answer.code == 0
    assert "not checked: the run kept no decisions; run it with --decisions" in answer.out
    assert json.loads((copied / "validation" / "linear" / "validation.json").read_text())["parity"] is None


def test_other_decisions_are_named_and_fail(twinserve, copied):
    change_column(
        copied / "decisions.parquet", "num_new", lambda rows: [*rows[:7], [value + 1 for value in rows[7]], *rows[8:]]
    )
    edit(copied / "manifest.json", code="older")
    answer = twinserve("validate", copied)
    assert answer.code == 1
    assert "the run was made by other code than this" in answer.err
    assert "the replay decides otherwise: step 7, num_new: real [" in answer.err
    assert (copied / "validation" / "linear" / "validation.json").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--calibration", "nothing"], "--calibration nothing: no calibrations file for 'nothing'"),
        (["--calibration", "nothing.yaml"], "--calibration nothing.yaml: no calibrations file"),
        (["--set", "backend=sim"], "is a simulated run; give the folder of a `twinserve run --backend real"),
        (["--set", "sim=null"], "sim.cost_model: is missing; give --calibration FILE"),
        (["--set", "sim.cost_model={kind: replay, run: .}"], "replay predicts no step times; give --calibration FILE"),
    ],
)
def test_a_cost_model_that_cannot_be_used_is_one_line(twinserve, eventful_run, tmp_path, options, complaint):
    answer = twinserve("validate", eventful_run, "--out", tmp_path, *options)
    assert answer.code == 2
    assert complaint in answer.line
    assert list(tmp_path.iterdir()) == []


def test_a_calibration_without_terms_for_the_runs_steps_is_one_line(twinserve, copied):
    change_column(copied / "steps.parquet", "graph_mode", lambda modes: ["mixed"] * len(modes))
    answer = twinserve("validate", copied, "--calibration", CALIBRATION)
    assert answer.code == 2
    assert "no terms for mixed steps, only for eager" in answer.line


def test_a_folder_that_cannot_be_written_is_one_line(twinserve, eventful_run, tmp_path):
    (tmp_path / "file").write_text("")
    answer = twinserve("validate", eventful_run, "--out", tmp_path / "file" / "in")
    assert answer.code == 2
    assert "cannot be written" in answer.line


def test_a_folder_that_is_interrupted_keeps_what_had_finished(twinserve, sweep_folder, tmp_path, monkeypatch):
    from twinserve.experiments.validation import run_folders as folders

    def second_is_interrupted(run, source):
        if run.folder.name == "second":
            raise KeyboardInterrupt
        return validate_run(run, source)

    monkeypatch.setattr(folders, "validate_run", second_is_interrupted)
    answer = twinserve("validate", sweep_folder, "--out", tmp_path)
    assert answer.code == 130
    assert answer.line == "twinserve: interrupted; what had finished stays"
    (finished,) = tmp_path.iterdir()
    assert (finished / "validation.json").exists()


def test_a_calibration_that_is_made_after_the_run_is_found(twinserve, tmp_path):
    pytest.importorskip("torch")
    run = run_real(tmp_path, sim={"cost_model": {"kind": "calibration", "file": "later.yaml"}})
    line = twinserve("validate", run).line
    assert "no calibrations file for" in line
    assert "/later.yaml'" in line
    calibration = read_yaml(packaged_configs() / "calibrations" / f"{CALIBRATION}.yaml")
    write(tmp_path, calibration, "later.yaml")
    assert twinserve("validate", run).code == 0


def test_the_trace_of_a_run_is_found_again_or_asked_for(twinserve, tmp_path):
    pytest.importorskip("torch")
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("tokens\n" + "\n".join(str(4 + n % 9) for n in range(30)) + "\n")
    changes = {
        "workload__sessions": None,
        "workload__input_len": {"dist": "empirical", "path": "lengths.csv", "column": "tokens"},
    }
    run = run_real(tmp_path, **changes)
    assert twinserve("validate", run).code == 0
    elsewhere = lengths.rename(tmp_path / "moved.csv")
    missing = twinserve("validate", run)
    assert missing.code == 2
    assert "/lengths.csv does not exist; give an existing file" in missing.line
    assert twinserve("validate", run, "--set", f"workload.input_len.path={elsewhere}").code == 0
    lengths.write_text("tokens\n5\n6\n")
    changed = twinserve("validate", run)
    assert changed.code == 2
    assert "is not the file that the run read (its digest differs)" in changed.line


@pytest.fixture(scope="module")
def sweep_folder(eventful_run, tmp_path_factory):
    """Two real runs, one of them without decisions, and what is no real run."""
    folder = tmp_path_factory.mktemp("sweep")
    shutil.copytree(eventful_run, folder / "first")
    second = run_real(tmp_path_factory.mktemp("second"), decisions=False, engine__max_num_seqs=3)
    shutil.copytree(second, folder / "second")
    return folder


def test_a_folder_of_runs_is_one_table_row_each(twinserve, sweep_folder, tmp_path):
    answer = twinserve("validate", sweep_folder, "--out", tmp_path)
    assert answer.code == 0
    with (tmp_path / "validation.csv").open() as file:
        first, second = csv.DictReader(file)
    assert (first["engine.max_num_seqs"], second["engine.max_num_seqs"]) == ("6", "3")
    assert (first["parity"], second["parity"]) == ("equal", "not checked")
    single = json.loads((tmp_path / first["run_id"] / "validation.json").read_text())
    assert float(first["p99_ttft_ms_error_percent"]) == single["figures"]["p99_ttft_ms"]["error_percent"]
    sizes = [abs(float(row["output_throughput_error_percent"])) for row in (first, second)]
    assert f"{np.mean(sizes):.1f}" in answer.out
    assert "running requests" in answer.out  # the key in which the points differ, in several lines
    assert "checked" in answer.out
    assert max(map(len, answer.out.splitlines()[:-1])) <= 80
    assert (tmp_path / "validation.png").exists()


def test_points_that_cannot_be_validated_are_named_and_the_others_go_on(twinserve, sweep_folder, tmp_path):
    folder = shutil.copytree(sweep_folder, tmp_path / "sweep")
    (folder / "first" / "steps.parquet").write_bytes(b"")
    shutil.copytree(folder / "second", folder / "simulated")
    config = folder / "simulated" / "config.yaml"
    config.write_text(config.read_text().replace("backend: real", "backend: sim"))
    answer = twinserve("validate", folder)
    assert answer.code == 1
    assert answer.line.startswith(f"failed: {folder / 'first' / 'steps.parquet'}: cannot be read")
    assert "1 of 2 real runs validated" in answer.out
    assert "1 simulated runs left out" in answer.out


def test_a_point_that_decides_otherwise_fails_the_folder(twinserve, sweep_folder, tmp_path):
    folder = shutil.copytree(sweep_folder, tmp_path / "sweep")
    change_column(folder / "first" / "decisions.parquet", "preempted", lambda rows: [[1], *rows[1:]])
    answer = twinserve("validate", folder, "--out", tmp_path / "out")
    assert answer.code == 1
    assert answer.line.startswith(f"failed: {folder / 'first'}: the replay decides otherwise: step 0, preempted")
    assert "2 of 2 real runs validated" in answer.out


def test_a_folder_without_runs_is_one_line(twinserve, tmp_path):
    assert "holds no run; give a folder of" in twinserve("validate", tmp_path).line
    assert "is no folder" in twinserve("validate", tmp_path / "nothing").line
