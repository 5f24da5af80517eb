"""Where the tests find things: the project, its packaged configurations, made-up data, and the collected traces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "twinserve"
CONFIGS = PACKAGE / "configs"
DATA = ROOT / "tests" / "data"
TRACES = Path(os.environ.get("TWINSERVE_TRACES", ROOT.parent / "shared" / "traces"))


def real_trace(path: str) -> str:
    """The file among the collected traces; the test is skipped where they are absent."""
    if not (TRACES / path).exists():
        pytest.skip("the collected traces are not here")
    return str(TRACES / path)
