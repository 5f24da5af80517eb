"""Requests that could never run, even alone, are refused on arrival with a typed reason."""

from __future__ import annotations

from collections.abc import Iterator

from twinserve.sched_core.events import Admission, RefusalReason
from twinserve.sched_core.requests.spec import RequestSpec
from twinserve.sched_core.state import SchedulerState


def check_admissible(state: SchedulerState, spec: RequestSpec) -> Admission | None:
    """The refusal of ``spec``, or None when it may be queued."""
    for reason, detail in _objections(state, spec):
        return Admission(request_id=spec.request_id, refusal=reason, detail=detail)
    return None


def _objections(state: SchedulerState, spec: RequestSpec) -> Iterator[tuple[RefusalReason, str]]:
    config, length = state.config, spec.num_prompt_tokens
    capacity = config.num_blocks * config.block_size
    if spec.request_id in state.requests:
        yield RefusalReason.DUPLICATE_ID, f"request {spec.request_id} is unfinished"
    if length == 0:
        yield RefusalReason.EMPTY_PROMPT, "the prompt has no tokens"
    if spec.max_tokens < 1:
        yield RefusalReason.NO_OUTPUT, f"max_tokens is {spec.max_tokens}"
    if length >= config.max_model_len:
        yield RefusalReason.EXCEEDS_MODEL_LEN, f"{length} prompt tokens leave no room in {config.max_model_len}"
    if length > capacity:
        yield RefusalReason.EXCEEDS_KV_CACHE, f"{length} prompt tokens, the KV pool holds {capacity}"
    if not config.enable_chunked_prefill and length > config.max_num_batched_tokens:
        budget = config.max_num_batched_tokens
        yield RefusalReason.EXCEEDS_TOKEN_BUDGET, f"{length} prompt tokens in one step, the budget is {budget}"
    if config.max_num_queued_reqs is not None and len(state.requests) >= config.max_num_queued_reqs:
        yield RefusalReason.QUEUE_FULL, f"{len(state.requests)} requests wait or run"
