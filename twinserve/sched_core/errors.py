"""Misuse of the engine, and what ends a run early; told apart from user input, which is refused and not raised."""

from __future__ import annotations


class SchedulerError(RuntimeError):
    """The engine was driven wrongly: a step begun twice, a step id that is not in flight, time running backwards."""


class RunStopped(Exception):  # noqa: N818 - a reason, of which some are nobody's error
    """Ends a run early. ``str()`` is one line that says why; what was recorded until then stays."""


class StuckError(RunStopped, RuntimeError):
    """Requests are waiting, nothing is scheduled and no policy names a time to try again."""
