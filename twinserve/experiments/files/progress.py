"""Progress of work that takes a while: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from time import monotonic
from typing import Any, Self

PATIENCE_S = 0.7
LINE_EVERY_S = 10.0


class LateProgress:
    """Shows on stderr how far the work is; ``update(done, total)`` moves it.

    A terminal gets a bar once the work has taken PATIENCE_S. Anything else gets a line every LINE_EVERY_S, with the
    time since the start and an estimate of what is left. ``enabled`` False shows nothing.
    """

    def __init__(self, title: str, unit: str, *, enabled: bool = True) -> None:
        self._title = title
        self._unit = unit
        self._enabled = enabled
        self._is_terminal = sys.stderr.isatty()
        self._began = self._last_line = monotonic()
        self._exit = ExitStack()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._exit.close()

    def update(self, done: int, total: int) -> None:
        """``done`` of ``total`` are finished."""
        if not self._enabled:
            return
        if not self._is_terminal:
            self._log(done, total)
        elif monotonic() - self._began >= PATIENCE_S:
            if self._bar is None:
                self._show()
            self._bar.update(self._task, completed=done, total=total)

    def _log(self, done: int, total: int) -> None:
        now = monotonic()
        if now - self._last_line < LINE_EVERY_S:
            return
        self._last_line = now
        taken = now - self._began
        share = f"{done / total:.0%}" if total else "?"
        left = f", about {taken / done * (total - done):,.0f} s left" if 0 < done <= total else ""
        line = f"{self._title}: {done:,} of {total:,} {self._unit} ({share}) after {taken:,.0f} s{left}"
        print(line, file=sys.stderr, flush=True)  # noqa: T201 - the log of a command

    def _show(self) -> None:
        from rich import progress
        from rich.console import Console

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn(self._unit),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
        )
        self._bar = progress.Progress(*columns, console=Console(stderr=True), transient=True)
        self._exit.enter_context(self._bar)
        self._task = self._bar.add_task(self._title, total=None)
