"""An undo log: what ``cancel_step`` needs to put everything back exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Undo: TypeAlias = tuple[Callable[..., object], *tuple[Any, ...]]


class Journal:
    """Records how to undo each change, and undoes them in reverse order.

    ``record((undo, *args))`` notes that ``undo(*args)`` takes a change back (a plain append: it is called often).
    Invariant: an undo runs in exactly the state that its change left behind, so it needs no checks.
    """

    __slots__ = ("_entries", "record")

    def __init__(self) -> None:
        self._entries: list[Undo] = []
        self.record: Callable[[Undo], None] = self._entries.append

    def rollback(self) -> None:
        """Undo everything recorded since the last ``clear``."""
        while self._entries:
            undo, *args = self._entries.pop()
            undo(*args)

    def clear(self) -> None:
        """Make everything recorded so far permanent."""
        self._entries.clear()
