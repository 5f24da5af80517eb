"""An undo log: what ``cancel_step`` needs to put everything back exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Journal:
    """Records how to undo each change, and undoes them in reverse order.

    Invariant: an undo runs in exactly the state that its change left behind, so it needs no checks.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def record(self, undo: Callable[..., object], *args: Any) -> None:
        self._entries.append((undo, args))

    def rollback(self) -> None:
        """Undo everything recorded since the last ``clear``."""
        while self._entries:
            undo, args = self._entries.pop()
            undo(*args)

    def clear(self) -> None:
        """Make everything recorded so far permanent."""
        self._entries.clear()
