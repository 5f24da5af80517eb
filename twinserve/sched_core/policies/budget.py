"""How many tokens a step may hold."""

from __future__ import annotations

from twinserve.sched_core.policies.interfaces import BatchState


class FixedBudget:
    """Always ``max_num_batched_tokens``."""

    def tokens(self, state: BatchState, now: int) -> int:
        return state.max_num_batched_tokens
