"""The one exception type of the real engine."""

from __future__ import annotations

from twinserve.sched_core.errors import RunStopped


class EngineError(RunStopped):
    """Something the user can act on: one line that says what is wrong and what would help.

    ``key`` is the dotted setting at fault, None where it is none or several; ``str()`` begins with it.
    """

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.key = key

    def __str__(self) -> str:
        return self.message if self.key is None else f"{self.key}: {self.message}"
