"""A sweep killed without warning and started again loses nothing and says the same as one left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from time import monotonic, sleep

import pytest

from tests.experiments.helpers.small_experiments import small, write
from tests.paths import ROOT
from twinserve.experiments.store.run_store import RunStore

NUM_RUNS = 40
SUMMARY = "summary.csv"
INTERRUPTED = 130
WAYS = ("KILL parent", "KILL worker", "KILL group", "TERM parent", "TERM group", "INT parent", "INT group")
RECORDED = "*/[crst]*.[jpy]*"
"""config.yaml, result.json and the parquet files of every run; not the manifests, which hold clock readings."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture
def config(tmp_path):
    matrix = {"engine.policy": ["mixed", "static"], "engine.max_num_seqs": [1, 2, 3, 4], "seed": [0, 1, 2, 3, 4]}
    sweep = {"base": small(workload__num_prompts=40), "matrix": matrix, "report": {"plots": False}}
    return write(tmp_path, {**sweep, "executor": {"kind": "processes", "workers": 2}}, "sweep.yaml")


def start(config: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "twinserve", "sweep", str(config), "--out", str(out)]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes)


def of_session(session: int) -> dict[int, list[str]]:
    """Living processes of a session, with their command lines."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                command = (folder / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if int(its_session) == session and state != "Z":
                found[int(folder.name)] = command
    return found


def workers_of(process: subprocess.Popen[bytes]) -> list[int]:
    found = of_session(process.pid).items()
    return sorted(pid for pid, command in found if any("sweep.workers" in word for word in command))


def kill(process: subprocess.Popen[bytes], way: str, random: Random) -> str:
    """Does it; returns what was done, which is another thing where there is no worker."""
    name, whom = way.split()
    number = getattr(signal, f"SIG{name}")
    if whom == "worker":
        workers = workers_of(process)
        if workers:
            os.kill(random.choice(workers), number)
            return way
        whom = "parent"
    if whom == "group":
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid, number)
    return f"{name} {whom}"


def wait_for_results(process: subprocess.Popen[bytes], out: Path, num_wanted: int, way: str) -> None:
    """Signals that Python answers are for a program that has begun: before, Python itself has its own words."""
    while process.poll() is None and len(list(out.glob("*/result.json"))) < num_wanted:
        sleep(0.002)
    while process.poll() is None and not (way.startswith("KILL") or workers_of(process)):
        sleep(0.002)


def finished(out: Path) -> dict[str, bytes]:
    """Contents of every result that is there; each must be whole, with whole files beside it."""
    store = RunStore(out)
    names = [path.parent.name for path in out.glob("*/result.json")]
    for name in names:
        stored = store.look(name)
        assert stored.result is not None, stored.problem
    return {name: (out / name / "result.json").read_bytes() for name in names}


def end_of(session: int) -> float:
    """How long processes of the session go on."""
    began = monotonic()
    while of_session(session) and monotonic() - began < 30:
        sleep(0.01)
    assert not of_session(session)
    return monotonic() - began


def check_line(code: int, error: bytes, way: str) -> None:
    lines = [line for line in error.decode().replace("\r", "\n").splitlines() if line.strip()]
    assert not any("Traceback" in line for line in lines), error.decode()
    if way.startswith(("TERM", "INT")) and code != 0:
        assert (code, lines) == (INTERRUPTED, ["twinserve: interrupted; what had finished stays"])
    if way == "KILL worker" and code not in (0, -signal.SIGKILL):
        assert code == 1
        assert any("a worker process died" in line for line in lines)


def same_files(out: Path, other: Path) -> bool:
    paths = sorted(path.relative_to(other) for path in (*other.glob(RECORDED), other / SUMMARY))
    assert len(paths) == 5 * NUM_RUNS + 1
    return all((out / path).read_bytes() == (other / path).read_bytes() for path in paths)


def check(config: Path, tmp_path: Path, ways: list[str], resumed_every: int) -> None:
    random = Random(len(ways))
    undisturbed = start(config, tmp_path / "undisturbed")
    undisturbed.communicate()
    assert undisturbed.returncode == 0
    known: dict[str, bytes] = {}
    done, longest, number = Counter(), 0.0, 0
    out = tmp_path / f"killed-{number}"
    for kills, way in enumerate(ways, start=1):
        process = start(config, out)
        wait_for_results(process, out, min(len(known) + random.randint(0, 12), NUM_RUNS - 1), way)
        sleep(random.uniform(0, 0.05))
        did = kill(process, way, random) if process.poll() is None else "ended before"
        process.wait()
        longest = max(longest, end_of(process.pid))
        _, error = process.communicate()
        check_line(process.returncode, error, did)
        done[did] += 1
        now = finished(out)
        assert known.items() <= now.items(), "a finished run was lost or changed"
        known = now
        if kills % resumed_every == 0 or len(known) == NUM_RUNS:
            resumed = start(config, out)
            resumed.communicate()
            assert resumed.returncode == 0
            assert known.items() <= finished(out).items()
            assert not [*out.glob("*/.*"), *out.glob(".*")], "leftovers of killed processes"
            assert same_files(out, tmp_path / "undisturbed")
            known, number = {}, number + 1
            out = tmp_path / f"killed-{number}"
    sys.stdout.write(f"{dict(done)}; {number} resumed sweeps; processes left for at most {longest:.2f} s\n")
    assert longest < 20, "workers outlive their sweep"  # a busy machine needs more than the 0.2 s of a look


def test_a_killed_sweep_goes_on_where_it_was(config, tmp_path):
    check(config, tmp_path, list(WAYS), resumed_every=len(WAYS))


@pytest.mark.slow
def test_a_sweep_killed_over_and_over_goes_on_where_it_was(config, tmp_path):
    """``TWINSERVE_KILLS`` sets how often."""
    ways = [*WAYS] * -(-int(os.environ.get("TWINSERVE_KILLS", "20")) // len(WAYS))
    Random(100).shuffle(ways)
    check(config, tmp_path, ways, resumed_every=5)
