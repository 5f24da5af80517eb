"""Progress: lines in a log, nothing when it is switched off."""

from __future__ import annotations

import pytest

from twinserve.experiments.files import progress
from twinserve.experiments.files.progress import LINE_EVERY_S, LateProgress


def lines(capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch, *, enabled: bool) -> list[str]:
    """What 100 updates, one each second, leave on a stderr that is no terminal."""
    now = [0.0]
    patch.setattr(progress, "monotonic", lambda: now[0])
    with LateProgress("demo", "requests", enabled=enabled) as bar:
        for done in range(1, 101):
            now[0] += 1.0
            bar.update(done, 100)
    return capsys.readouterr().err.splitlines()


def test_a_log_gets_a_plain_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = lines(capsys, monkeypatch, enabled=True)
    assert len(shown) == 100 // LINE_EVERY_S
    assert shown[2] == "demo: 30 of 100 requests (30%) after 30 s, about 70 s left"


def test_no_progress_shows_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(capsys, monkeypatch, enabled=False) == []
