"""``run --backend real`` that cannot go on: one line, exit 1, and what had finished is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests.experiments.helpers.small_experiments import CommandLine, small, write
from tests.real_backend.tiny_qwen3 import save_checkpoint
from twinserve.sched_core.policies.admission import AlwaysAdmit

SETTINGS: dict[str, Any] = {
    "backend": "real",
    "real": {"device": "cpu"},
    "model": {"path": "tiny", "dtype": "float32"},
    "workload__arrival": {"process": "all_at_once"},
}


class Closes(AlwaysAdmit):
    """Admits four requests, then nobody, and names no time to try again."""

    def __init__(self) -> None:
        self.left = 4

    def may_admit(self, *args: Any) -> bool:
        self.left -= 1
        return self.left >= 0


class Breaks(Closes):
    """Raises at the fifth request."""

    def may_admit(self, *args: Any) -> bool:
        if not super().may_admit(*args):
            raise ZeroDivisionError("a policy of mine")
        return True


@pytest.mark.parametrize(
    ("policy", "reason", "num_finished"),
    [("Closes", "unfinished requests, nothing scheduled", 4), ("Breaks", "ZeroDivisionError: a policy of mine", 2)],
)
def test_a_run_that_is_stuck_or_broken_is_one_line_and_keeps_its_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str, reason: str, num_finished: int
) -> None:
    save_checkpoint(tmp_path / "tiny")
    path = write(tmp_path, small(**SETTINGS, engine__admission=f"tests.real_backend.test_stopped_runs:{policy}"))
    answer = CommandLine(capsys)("run", path, "--out", tmp_path / "out", "--no-progress")
    assert answer.code == 1
    assert reason in answer.line
    (folder,) = (tmp_path / "out").iterdir()
    assert folder.name in answer.line
    reasons = parquet.read_table(folder / "requests.parquet")["finish_reason"].to_pylist()
    assert reasons.count("length") == num_finished
    assert reasons.count(None) == 6 - num_finished
    assert not (folder / "result.json").exists()
