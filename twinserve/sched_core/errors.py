"""Misuse of the engine and broken promises, told apart from user input (which is refused, not raised)."""

from __future__ import annotations


class SchedulerError(RuntimeError):
    """The engine was driven wrongly: a step begun twice, a step id that is not in flight, time running backwards."""


class StuckError(RuntimeError):
    """Requests are waiting, nothing is scheduled and no policy names a time to try again."""
