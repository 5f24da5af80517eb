"""``twinserve run`` and the small commands, through the real entry."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from tests.experiments.helpers.small_experiments import small, write
from tests.paths import ROOT
from twinserve.experiments.cli.main import COMMANDS
from twinserve.version import __version__


def results(out: Path) -> list[Path]:
    return sorted(out.glob("*/result.json"))


def test_a_run_prints_its_table_and_where_it_is(twinserve, tmp_path):
    answer = twinserve("run", write(tmp_path, small()), "--out", tmp_path / "out")
    (result,) = results(tmp_path / "out")
    assert answer.code == 0
    assert answer.err == ""
    assert "Successful requests:                     6" in answer.out
    assert answer.out.endswith(f"Results in {result.parent}\n")


def test_a_second_run_is_found_and_shown(twinserve, tmp_path):
    arguments = ("run", write(tmp_path, small()), "--out", tmp_path / "out")
    first, second = twinserve(*arguments), twinserve(*arguments)
    note = " (was already there; --force runs it again)\n"
    assert second.out == first.out.removesuffix("\n") + note
    assert twinserve(*arguments, "--force").out == first.out


def test_flags_replace_values_of_the_file(twinserve, tmp_path):
    config, out = write(tmp_path, small()), tmp_path / "out"
    answer = twinserve("run", config, "--out", out, "--set", "engine.policy=static", "--set", "seed=3", "--decisions")
    assert answer.code == 0
    (path,) = results(out)
    result = json.loads(path.read_text())
    assert (result["policy"], result["seed"]) == ("static", 3)
    assert (path.parent / "decisions.parquet").exists()


def test_checking_changes_no_result(twinserve, tmp_path):
    config = write(tmp_path, small())
    plain = twinserve("run", config, "--out", tmp_path / "plain")
    checked = twinserve("run", config, "--out", tmp_path / "checked", "--check")
    assert checked.code == plain.code == 0
    (first,), (second,) = results(tmp_path / "plain"), results(tmp_path / "checked")
    assert first.read_bytes() == second.read_bytes()


def test_refused_requests_are_counted_and_the_run_is_a_success(twinserve, tmp_path):
    data = small(engine__max_model_len=64)
    answer = twinserve("run", write(tmp_path, data), "--out", tmp_path / "out")
    assert answer.code == 0
    result = json.loads(results(tmp_path / "out")[0].read_text())
    assert result["completed"] + result["failed"] == 6
    assert result["failed"] == sum(result["failures_by_reason"].values()) > 0


def test_notes_for_the_reader_are_below_the_table(twinserve, tmp_path):
    answer = twinserve(
        "run", write(tmp_path, small(workload__output_len={"dist": "fixed", "value": 1})), "--out", tmp_path
    )
    assert "Note: every completed request has a single output token" in answer.out


def test_validating_runs_nothing(twinserve, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = twinserve("validate-config", write(tmp_path, small()))
    assert answer.code == 0
    assert "valid; small: 6 requests, backend sim, 64 KV blocks (engine.num_gpu_blocks_override)" in answer.out
    assert {path.name for path in tmp_path.iterdir()} == {"experiment.yaml"}


def test_validating_finds_a_missing_input_file(twinserve, tmp_path):
    data = small(workload={"kind": "trace", "format": "azure", "path": "no.csv"})
    answer = twinserve("validate-config", write(tmp_path, data))
    assert answer.code == 2
    assert "experiment.yaml: workload.path: " in answer.line


@pytest.mark.parametrize(
    ("topic", "line"),
    [
        ("policies", "engine.policy: mixed, decode_first, prefill_first, static"),
        ("models", "qwen3-8b"),
        ("hardware", "rtx-4090"),
        ("workloads", "workload.kind: synthetic"),
        ("configs", "smoke"),
    ],
)
def test_lists_name_what_a_yaml_may_name(twinserve, topic, line):
    assert line in twinserve("list", topic).out.splitlines()


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(twinserve, command):
    answer = twinserve(command, "--help")
    assert answer.code == 0
    assert "Usage" in answer.out


def test_help_lists_every_command(twinserve):
    for answer in (twinserve(), twinserve("--help")):
        assert answer.code == 0
        assert all(command in answer.out for command in COMMANDS)


def test_a_run_needs_neither_torch_nor_plotting_nor_pandas(tmp_path):
    blocked = "torch", "pandas", "matplotlib", "scipy", "joblib", "rich.progress"
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
        "from twinserve.experiments.cli.main import main\n"
        f"sys.exit(main(['run', {str(write(tmp_path, small()))!r}, '--out', {str(tmp_path / 'out')!r}]))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, capture_output=True)
    assert results(tmp_path / "out")


def test_an_interrupted_run_exits_with_130(tmp_path):
    data = small(workload__num_prompts=30_000, engine__max_num_seqs=1)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "twinserve", "run", str(write(tmp_path, data)), "--out", str(out)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        while not list(out.glob("*/manifest.json")):
            assert process.poll() is None
            sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert err == "twinserve: interrupted; what had finished stays\n"


def test_version_is_shown_without_a_subcommand(twinserve):
    answer = twinserve("--version")
    assert (answer.code, answer.out) == (0, f"twinserve {__version__}\n")


@pytest.mark.parametrize(("into", "status", "lines"), [("/dev/full", 1, 1), ("closed pipe", 141, 0), ("closed", 0, 0)])
def test_output_that_nobody_takes_is_no_traceback(into, status, lines):
    command = [sys.executable, "-m", "twinserve", "list", "policies"]
    if into == "closed pipe":
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
        os.close(writer)
    else:
        shell = f"{' '.join(command)} {'>&-' if into == 'closed' else f'> {into}'}"
        done = subprocess.run(["sh", "-c", shell], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == status
    assert len(done.stderr.splitlines()) == lines
