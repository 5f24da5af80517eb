"""The end of a step: sampled tokens are counted, stop rules applied, finished requests leave the batch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from twinserve.sched_core.errors import SchedulerError
from twinserve.sched_core.events import Event, Finished, FinishReason, TokensSampled
from twinserve.sched_core.limits import length_limit
from twinserve.sched_core.plan import ONE, Ints, StepPlan, StepResult
from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.running_table import RunningTable
from twinserve.sched_core.state import SchedulerState


def check_result(plan: StepPlan, result: StepResult) -> None:
    """Whether ``result`` fits ``plan``.

    Raises:
        SchedulerError: it has another number of ids, or an end that is no sampling row or comes twice.
    """
    step_id, num_samples, ended = plan.step_id, plan.num_samples, result.ended
    if result.token_ids is not None and len(result.token_ids) != num_samples:
        raise SchedulerError(f"step {step_id} samples {num_samples} rows, got {len(result.token_ids)} ids")
    if ended and (min(ended) < 0 or max(ended) >= num_samples or len(set(ended)) < len(ended)):
        raise SchedulerError(
            f"step {step_id}: ended should hold distinct positions among {num_samples} sampling rows, got {ended!r:.80}"
        )


def deliver(
    state: SchedulerState,
    rows: Ints,
    request_ids: Ints,
    num_tokens: Ints,
    result: StepResult,
    aborting: frozenset[int],
) -> tuple[Event, ...]:
    """Add the sampled token of each of ``rows`` (the sampling rows of the plan) and end what has to end.

    ``request_ids`` and ``num_tokens`` are what the table holds in those rows: the plan has them, so they are not read
    again. A request that is being aborted gets no more tokens. Stop rules in vLLM's order: end-of-sequence and stop
    ids, then the length limit, then the backend's word.
    """
    table, token_ids = state.running, result.token_ids
    scripted = list(result.ended)
    if aborting:
        kept = ~np.isin(request_ids, list(aborting))
        scripted = (np.cumsum(kept) - 1)[[index for index in scripted if kept[index]]].tolist() if scripted else []
        rows, request_ids, num_tokens = rows[kept], request_ids[kept], num_tokens[kept]
        token_ids = None if token_ids is None else token_ids[kept]
    known = num_tokens + ONE
    table.num_tokens[rows] = known
    sampled = (TokensSampled(request_ids, token_ids),) if len(rows) else ()
    due = (known >= table.check_at[rows]).nonzero()[0]
    stopped = _stopped_by_id(table, rows, token_ids) if token_ids is not None and table.num_checking else []
    if token_ids is not None:
        state.outputs.add(table.requests, rows, token_ids, {*due.tolist(), *scripted, *stopped})
    reasons = dict.fromkeys(rows[scripted].tolist(), FinishReason.STOP) if scripted else {}
    if len(due):
        reasons |= _check_lengths(state, rows[due].tolist(), known[due].tolist())
    if stopped:
        reasons |= dict.fromkeys(rows[stopped].tolist(), FinishReason.STOP)
    if not reasons and not aborting:
        return sampled
    finished = _end_rows(state, reasons) if reasons else ()
    aborted = abort_requests(state, aborting) if aborting else ()
    return (*sampled, *finished, *aborted)


def abort_requests(state: SchedulerState, request_ids: frozenset[int]) -> list[Finished]:
    """End requests wherever they are; unknown ids are left alone. Not to be called with a step in flight."""
    state.outputs.settle()
    known = sorted(request_id for request_id in request_ids if request_id in state.requests)
    table = state.running
    running = {
        int((table.request_ids[: table.size] == request_id).argmax()): FinishReason.ABORTED
        for request_id in known
        if state.requests[request_id].is_running
    }
    waiting = [state.requests[request_id] for request_id in known if not state.requests[request_id].is_running]
    for request in waiting:
        state.queue.discard(request)
    finished = _end_rows(state, running) if running else []
    return finished + [_end(state, request, FinishReason.ABORTED) for request in waiting]


def _check_lengths(state: SchedulerState, rows: list[int], num_tokens: list[int]) -> dict[int, FinishReason]:
    """Of rows that got to ``check_at``, those that reached their last token; the others completed a block: its key."""
    table, block_size, hash_next_block = state.running, state.config.block_size, state.blocks.hash_next_block
    requests, stop_of = table.requests, table.stop_at.item
    reasons: dict[int, FinishReason] = {}
    for row, known in zip(rows, num_tokens, strict=True):
        request, stop_at = requests[row], stop_of(row)
        if known >= stop_at:
            within = known < length_limit(state, request)
            reasons[row] = FinishReason.KV_CAPACITY if within else FinishReason.LENGTH
        else:
            hash_next_block(request)
            table.check_at[row] = min(stop_at, known + block_size)
    return reasons


def _stopped_by_id(table: RunningTable, rows: Ints, token_ids: Ints) -> list[int]:
    """Indices of the rows that sampled one of their stop ids."""
    checking: list[int] = table.checks_ids[rows].nonzero()[0].tolist()
    return [index for index in checking if token_ids.item(index) in table.requests[rows.item(index)].ending_ids]


def _end_rows(state: SchedulerState, reasons: Mapping[int, FinishReason]) -> list[Finished]:
    finished = []
    for row in sorted(reasons):
        request = state.running.sync(row)
        state.blocks.free(request)
        finished.append(_end(state, request, reasons[row]))
    state.running.remove([*reasons])
    return finished


def _end(state: SchedulerState, request: Request, reason: FinishReason) -> Finished:
    del state.requests[request.request_id]
    return Finished(
        request_id=request.request_id,
        reason=reason,
        num_output_tokens=request.num_output_tokens,
        output_token_ids=tuple(request.output_ids),
    )
