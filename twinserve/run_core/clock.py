"""Clocks of runs in real time: integer nanoseconds since they were first read."""

from __future__ import annotations

import time
from threading import Event
from typing import Protocol


class Clock(Protocol):
    """Tells the time (ns since the run's start) and waits."""

    def now(self) -> int: ...

    def wait_until(self, time_ns: int | None) -> None:
        """Returns at ``time_ns`` or a little later, at once when that has passed; earlier when ``wake`` is called.

        None waits for ``wake`` alone.
        """

    def wake(self) -> None:
        """Ends the wait that is going on, or else the next one. It may be called from any thread."""


class WallClock:
    """Real time, monotonic. The first reading is 0: a run starts at its first step boundary, as in a simulation."""

    def __init__(self) -> None:
        self._start: int | None = None
        self._woken = Event()

    def now(self) -> int:
        reading = time.perf_counter_ns()
        if self._start is None:
            self._start = reading
        return reading - self._start

    def wait_until(self, time_ns: int | None) -> None:
        if time_ns is None:
            self._woken.wait()
        else:
            while (left := time_ns - self.now()) > 0 and not self._woken.wait(left / 1e9):
                pass
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()


class ManualClock:
    """A clock for tests: the first reading is 0, each later one ``tick_ns`` further, and waiting jumps.

    A reading after a wait is ``oversleep_ns`` past the time that was asked for. Nothing else happens during a wait, so
    that ``wake`` has no effect.
    """

    def __init__(self, tick_ns: int = 0, oversleep_ns: int = 0) -> None:
        self._tick_ns = tick_ns
        self._oversleep_ns = oversleep_ns
        self._next = 0

    def now(self) -> int:
        reading, self._next = self._next, self._next + self._tick_ns
        return reading

    def wait_until(self, time_ns: int | None) -> None:
        """Raises ValueError for None: nobody would ever end that wait."""
        if time_ns is None:
            raise ValueError("a wait without an end: on a manual clock nothing arrives by itself")
        self._next = max(self._next, time_ns + self._oversleep_ns)

    def wake(self) -> None: ...
