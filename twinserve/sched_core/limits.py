"""How long a request may get."""

from __future__ import annotations

from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.state import SchedulerState


def stop_length(state: SchedulerState, request: Request) -> int:
    """Known tokens at which a request ends: its length limit, or one more than the whole pool can hold."""
    return min(length_limit(state, request), state.config.num_blocks * state.config.block_size + 1)


def length_limit(state: SchedulerState, request: Request) -> int:
    """Known tokens at which ``max_tokens`` or ``max_model_len`` ends a request."""
    return min(request.num_prompt_tokens + request.spec.max_tokens, state.config.max_model_len)
