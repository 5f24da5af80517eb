"""A progress bar that appears only when the work takes a while."""

from __future__ import annotations

from contextlib import ExitStack
from time import monotonic
from typing import Any, Self

PATIENCE_S = 0.7


class LateProgress:
    """Appears on stderr once the work has taken PATIENCE_S, if that is a terminal; ``update(done, total)`` moves it."""

    def __init__(self, title: str, unit: str, *, enabled: bool = True) -> None:
        self._title = title
        self._unit = unit
        self._enabled = enabled
        self._began = monotonic()
        self._exit = ExitStack()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._exit.close()

    def update(self, done: int, total: int) -> None:
        """``done`` of ``total`` are finished."""
        if not self._enabled or monotonic() - self._began < PATIENCE_S:
            return
        if self._bar is None:
            self._show()
        self._bar.update(self._task, completed=done, total=total)

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
        console = Console(stderr=True)
        self._bar = progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._exit.enter_context(self._bar)
        self._task = self._bar.add_task(self._title, total=None)
