"""The one clock of a real run: integer nanoseconds since it was first read."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time (ns since the run's start) and waits."""

    def now(self) -> int: ...

    def sleep_until(self, time_ns: int) -> None:
        """Returns at ``time_ns`` or a little later; at once when that has passed."""


class WallClock:
    """Real time, monotonic. The first reading is 0: a run starts at its first step boundary, as in a simulation."""

    def __init__(self) -> None:
        self._start: int | None = None

    def now(self) -> int:
        reading = time.perf_counter_ns()
        if self._start is None:
            self._start = reading
        return reading - self._start

    def sleep_until(self, time_ns: int) -> None:
        while (left := time_ns - self.now()) > 0:
            time.sleep(left / 1e9)


class ManualClock:
    """A clock for tests: the first reading is 0, each later one ``tick_ns`` further, and sleeping jumps.

    A reading after a sleep is ``oversleep_ns`` past the time that was asked for.
    """

    def __init__(self, tick_ns: int = 0, oversleep_ns: int = 0) -> None:
        self._tick_ns = tick_ns
        self._oversleep_ns = oversleep_ns
        self._next = 0

    def now(self) -> int:
        reading, self._next = self._next, self._next + self._tick_ns
        return reading

    def sleep_until(self, time_ns: int) -> None:
        self._next = max(self._next, time_ns + self._oversleep_ns)
