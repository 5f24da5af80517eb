"""The replay cost model: step times of a recorded run, so that a simulation follows its clock exactly."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from twinserve.sched_core.errors import RunStopped
from twinserve.sched_core.features import StepFeatures


class ReplayError(RunStopped):
    """The simulation left the recording: it asked for a step that the recording does not have."""


class ReplayCostModel:
    """Steps start and end when they did in the recording, whatever they hold.

    ``intervals`` has one ``(start_ns, end_ns)`` per recorded step, in order. Step ``i`` of the simulation ends at
    ``end_ns[i]``; an idle engine wakes at the recorded start of its next step, since arrivals enter at step
    starts. ``wakes`` are further times at which the recorded engine was awake, such as when it refused a request
    while idle: it wakes at the first of either that is not past. One object serves one run: it remembers which step
    comes next.

    Raises:
        ValueError: an interval that is empty or starts before the previous one ended.
        ReplayError: from ``step_ns``, when the recording is exhausted or a step would have to end before it starts.
    """

    __slots__ = ("_intervals", "_num_steps", "_wakes")

    def __init__(self, intervals: Sequence[tuple[int, int]], wakes: Iterable[int] = ()) -> None:
        self._intervals = tuple((int(start), int(end)) for start, end in intervals)
        self._wakes = sorted(wakes)
        self._num_steps = 0
        _check(self._intervals)

    def step_ns(self, features: StepFeatures, now: int) -> int:
        step = self._num_steps
        if step >= len(self._intervals):
            raise ReplayError(
                f"step {step}: the recording has only {len(self._intervals)} steps; "
                f"at {now} ns the simulation runs one more ({features.num_tokens} tokens in {features.num_rows} rows)"
            )
        end = self._intervals[step][1]
        if end <= now:
            raise ReplayError(f"step {step}: it starts at {now} ns but was recorded to end at {end} ns")
        self._num_steps += 1
        return end - now

    def wake_ns(self, now: int) -> int:
        index = bisect_left(self._wakes, now)
        known = self._wakes[index : index + 1]
        if self._num_steps < len(self._intervals):
            known.append(max(now, self._intervals[self._num_steps][0]))
        return min(known, default=now)


def _check(intervals: tuple[tuple[int, int], ...]) -> None:
    previous_end = 0
    for step, (start, end) in enumerate(intervals):
        if start < previous_end or end <= start:
            raise ValueError(f"recorded step {step} runs from {start} to {end} ns after an end at {previous_end} ns")
        previous_end = end
