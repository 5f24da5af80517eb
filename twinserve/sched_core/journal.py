"""An undo log: what ``cancel_step`` needs to put everything back exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Undo: TypeAlias = tuple[Callable[..., object], *tuple[Any, ...]]


class Journal:
    """Records how to undo each change, and undoes them in reverse order.

    ``record((undo, *args))`` notes that ``undo(*args)`` takes a change back; ``clear()`` makes everything recorded so
    far permanent. Both are plain calls of the list's: they are called often.
    Invariant: an undo runs in exactly the state that its change left behind, so it needs no checks.
    """

    __slots__ = ("_entries", "clear", "record")

    def __init__(self) -> None:
        self._entries: list[Undo] = []
        self.record: Callable[[Undo], None] = self._entries.append
        self.clear: Callable[[], None] = self._entries.clear

    def rollback(self) -> None:
        """Undo everything recorded since the last ``clear``."""
        while self._entries:
            undo, *args = self._entries.pop()
            undo(*args)
