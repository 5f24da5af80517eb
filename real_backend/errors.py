"""The one exception type of the real engine."""

from __future__ import annotations


class EngineError(Exception):
    """Something the user can act on: one line that says what is wrong and what would help."""
