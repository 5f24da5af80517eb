"""The examples run as they stand, in a folder of their own, with no GPU."""

import os
import subprocess
import sys

import pytest

from tests.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_stays_short(path, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, path], cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert list(tmp_path.glob("*.png"))
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 40
