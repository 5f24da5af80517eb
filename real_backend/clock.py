"""The one clock of a real run: integer nanoseconds since the clock was made."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time (ns since the run's start) and waits."""

    def now(self) -> int: ...

    def sleep_until(self, time_ns: int) -> None:
        """Returns at ``time_ns`` or a little later; at once when that has passed."""


class WallClock:
    """Real time, monotonic."""

    def __init__(self) -> None:
        self._start = time.perf_counter_ns()

    def now(self) -> int:
        return time.perf_counter_ns() - self._start

    def sleep_until(self, time_ns: int) -> None:
        while (left := time_ns - self.now()) > 0:
            time.sleep(left / 1e9)


class ManualClock:
    """A clock for tests: each reading is ``tick_ns`` after the one before, and sleeping jumps."""

    def __init__(self, tick_ns: int = 0) -> None:
        self._tick_ns = tick_ns
        self._now = 0

    def now(self) -> int:
        self._now += self._tick_ns
        return self._now

    def advance(self, duration_ns: int) -> None:
        self._now += duration_ns

    def sleep_until(self, time_ns: int) -> None:
        self._now = max(self._now, time_ns)
