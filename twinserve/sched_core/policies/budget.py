"""How many tokens a step may hold."""

from __future__ import annotations

from twinserve.sched_core.policies.interfaces import BatchState


class FixedBudget:
    """Always ``num_tokens``, which None sets to ``max_num_batched_tokens``."""

    def __init__(self, num_tokens: int | None = None) -> None:
        if num_tokens is not None and num_tokens < 1:
            raise ValueError("num_tokens must be at least 1")
        self._num_tokens = num_tokens

    def tokens(self, state: BatchState, now: int) -> int:
        return state.max_num_batched_tokens if self._num_tokens is None else self._num_tokens
