"""``prefill_schedule_interval``: steps with prefill work keep a distance from each other."""

from __future__ import annotations

from twinserve.sched_core.plan import ONE, Ints, StepPlan
from twinserve.sched_core.running_table import RunningTable


class PrefillPacing:
    """Holds prefill work back until ``interval`` steps have passed since the last of it.

    Not when nothing is decoding, nor when the last step that held nothing back and preempted nobody left requests in
    the queue (vLLM). Prefill work is every chunk up to a request's first token since it entered the batch, even one of
    a single token; not the entry of a request that has just one token to compute.
    """

    __slots__ = ("_interval", "_queue_was_drained", "_steps_since_prefill")

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._steps_since_prefill = interval
        self._queue_was_drained = True

    def defers_prefill(self, table: RunningTable) -> bool:
        if not self._queue_was_drained or self._steps_since_prefill >= self._interval - 1:
            return False
        return bool(len(table.decoding()))

    def confirm(self, plan: StepPlan, table: RunningTable, rows: Ints, *, held: bool) -> None:
        """``plan`` was run by ``rows`` of ``table``, which has not counted its tokens yet; ``held``: no prefills."""
        self._steps_since_prefill += 1
        if _has_prefill_work(plan, table, rows):
            self._steps_since_prefill = 0
        if not held and not plan.preempted:
            self._queue_was_drained = plan.num_waiting == 0


def _has_prefill_work(plan: StepPlan, table: RunningTable, rows: Ints) -> bool:
    first_started = plan.num_rows - len(plan.started)
    before = rows[:first_started]
    if bool((table.num_tokens[before] == table.entry_tokens[before]).any()):
        return True
    single = plan.samples[first_started:] & (plan.num_new[first_started:] == ONE)
    return not bool(single.all())
