"""A sweep killed without warning and started again loses nothing and says the same as one left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from random import Random
from time import sleep

import pyarrow.parquet as pq
import pytest

from tests.experiments.helpers.small_experiments import small, write
from tests.paths import ROOT

NUM_RUNS = 40


@pytest.fixture
def config(tmp_path):
    matrix = {"engine.policy": ["mixed", "static"], "engine.max_num_seqs": [1, 2, 3, 4], "seed": [0, 1, 2, 3, 4]}
    sweep = {"base": small(workload__num_prompts=40), "matrix": matrix, "report": {"plots": False}}
    return write(tmp_path, {**sweep, "executor": {"kind": "processes", "workers": 2}}, "sweep.yaml")


def start(config: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "twinserve", "sweep", str(config), "--out", str(out)]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL)


def finished(out: Path) -> dict[str, bytes]:
    """Contents of every result that is there; each must be whole, with whole files beside it."""
    results = {}
    for path in out.glob("*/result.json"):
        results[path.parent.name] = path.read_bytes()
        num_requests = pq.read_metadata(path.parent / "requests.parquet").num_rows
        assert json.loads(results[path.parent.name])["num_prompts"] == num_requests
    return results


def kill_once_it_has_finished(process: subprocess.Popen[bytes], out: Path, num_wanted: int, after_s: float) -> None:
    """SIGKILL to the sweep and all its workers, ``after_s`` after ``num_wanted`` runs are finished in ``out``."""
    while process.poll() is None and len(list(out.glob("*/result.json"))) < num_wanted:
        sleep(0.002)
    sleep(after_s)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def check(config: Path, tmp_path: Path, num_kills: int) -> None:
    random = Random(num_kills)
    out, known = tmp_path / "killed", {}
    for wanted in sorted(random.sample(range(NUM_RUNS), num_kills)):
        kill_once_it_has_finished(start(config, out), out, wanted, random.uniform(0, 0.05))
        now = finished(out)
        assert known.items() <= now.items(), "a finished run was lost or changed"
        known = now
    assert start(config, out).wait() == 0
    assert start(config, tmp_path / "undisturbed").wait() == 0
    assert known.items() <= finished(out).items()
    assert len(finished(out)) == NUM_RUNS
    assert not list(out.glob("*/.*")), "leftovers of killed processes"
    assert (out / "summary.csv").read_bytes() == (tmp_path / "undisturbed" / "summary.csv").read_bytes()


def test_a_killed_sweep_goes_on_where_it_was(config, tmp_path):
    check(config, tmp_path, num_kills=4)


@pytest.mark.slow
def test_a_sweep_killed_twenty_times_goes_on_where_it_was(config, tmp_path):
    check(config, tmp_path, num_kills=20)
