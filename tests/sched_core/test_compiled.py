"""The compiled scheduler decides what the interpreted one does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import PACKAGE, ROOT

# Preemptions, shared prefixes, chunks and refills on a small pool; prints a digest of every decision.
DECIDE = """
import hashlib
import twinserve.sched_core.engine
from twinserve.run_core.record import Recorder
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import Traffic
from twinserve.sim_backend.driver import simulate
from twinserve.sim_backend.linear import LinearCostModel, LinearTerms
from tests.builders import make_engine, make_request

lengths = [(7 * number) % 150 + 5 for number in range(200)]
requests = [
    make_request(number, length, (5 * number) % 60 + 2, shared=min(length, 32), arrival_ns=number * 3_000_000)
    for number, length in enumerate(lengths)
]
recorder = Recorder(keep_plans=True)
engine = make_engine(num_blocks=60, max_num_batched_tokens=128, max_num_seqs=16, max_model_len=512)
session = Session(engine, Traffic(requests), recorder)
record = simulate(session, LinearCostModel(LinearTerms(base_ms=5.0))).complete()
plans = b"".join(plan.to_bytes() for plan in record.plans)
print(hashlib.sha256(plans).hexdigest(), record.stats["num_preemptions"] > 0, record.end_ns)
print(twinserve.sched_core.engine.__file__.endswith(".py"))
"""


def decide(folder: Path) -> list[str]:
    """What DECIDE prints with the package in ``folder``."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", DECIDE], cwd=folder, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_compiled_scheduler_takes_the_same_decisions(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(PACKAGE, tmp_path / "twinserve", ignore=ignored)
    shutil.copy(ROOT / "setup.py", tmp_path)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    environment = os.environ | {"TWINSERVE_COMPILE": "1"}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    plain, compiled = decide(ROOT), decide(tmp_path)
    assert (plain[1], compiled[1]) == ("True", "False")
    assert compiled[0] == plain[0]
    assert plain[0].split()[1] == "True"
