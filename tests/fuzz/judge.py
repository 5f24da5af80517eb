"""Runs one command in this process and says which promise it breaks, if any."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import traceback
from collections import Counter
from pathlib import Path

from twinserve.experiments.cli.main import main

TIME_LIMIT_S = 20
MAX_LINE = 300
TRAP = "twinserve_fuzz_trap"
"""A module whose import is an offence."""


class Hang(BaseException):
    """The command took longer than the limit."""


class Judge:
    """Counts answers, and keeps every offence with the input that made it.

    ``folder`` is where the commands may write; a trap lies beside it.
    """

    def __init__(self, tmp_path: Path, monkeypatch) -> None:
        self.folder = tmp_path / "inside"
        self.folder.mkdir()
        self._around = tmp_path
        (tmp_path / "modules").mkdir()
        (tmp_path / "modules" / f"{TRAP}.py").write_text("class P: ...\n")
        monkeypatch.syspath_prepend(tmp_path / "modules")
        monkeypatch.chdir(self.folder)
        self._before = {path.name for path in tmp_path.iterdir()}
        self.counts: Counter[str] = Counter()
        self.offences: list[tuple[str, object]] = []

    def __call__(self, case: object, *arguments: object) -> None:
        code, err = self._answer([str(argument) for argument in arguments])
        self.counts[str(code)] += 1
        offence = self._offence(code, err)
        if offence:
            self.offences.append((offence, case))

    def _answer(self, arguments: list[str]) -> tuple[object, str]:
        out, err = io.StringIO(), io.StringIO()
        before = signal.signal(signal.SIGALRM, _hang)
        signal.alarm(TIME_LIMIT_S)
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                return main(arguments), err.getvalue()
        except Hang:
            return "hang", ""
        except BaseException:
            return "traceback", traceback.format_exc(limit=-3)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    def _offence(self, code: object, err: str) -> str:
        if code not in (0, 1, 2):
            return f"{code}: {err}"
        if TRAP in sys.modules:
            del sys.modules[TRAP]
            return "code was imported"
        if {path.name for path in self._around.iterdir()} != self._before:
            return "written outside"
        for line in err.split("\n"):
            if line.startswith("twinserve: error:") and (len(line) > MAX_LINE or not line.isprintable()):
                return f"bad line of {len(line)}: {line[:400]!r}"
        if code == 2 and err.count("twinserve: error:") != 1:
            return f"no single line: {err[:400]!r}"
        return ""


def _hang(*_: object) -> None:
    raise Hang
