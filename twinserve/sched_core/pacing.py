"""``prefill_schedule_interval``: steps with prefill work keep a distance from each other."""

from __future__ import annotations

from twinserve.sched_core.plan import StepPlan
from twinserve.sched_core.running_table import RunningTable


class PrefillPacing:
    """Holds prefill work back until ``interval`` steps have passed since the last of it.

    Not when nothing is decoding, nor when the last such step had to leave requests in the queue (vLLM).
    """

    __slots__ = ("_interval", "_queue_was_drained", "_steps_since_prefill")

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._steps_since_prefill = interval
        self._queue_was_drained = True

    def defers_prefill(self, table: RunningTable) -> bool:
        if not self._queue_was_drained or self._steps_since_prefill >= self._interval - 1:
            return False
        return bool((table.remaining() == 1).any())

    def confirm(self, plan: StepPlan) -> None:
        """``plan`` was run."""
        self._steps_since_prefill += 1
        if plan.num_tokens > len(plan.request_ids) or plan.started:
            self._steps_since_prefill = 0
            self._queue_was_drained = plan.num_waiting == 0
