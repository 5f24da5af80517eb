"""What must hold for every engine at every step; tests and ``--check`` verify it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.errors import RunStopped
from twinserve.sched_core.plan import StepPlan
from twinserve.sched_core.state import SchedulerState

FULL_CHECK_INTERVAL = 1000


class InvariantError(RunStopped, AssertionError):
    """The engine broke one of its own rules."""


class Checker:
    """Cheap checks after every step, all of them every ``FULL_CHECK_INTERVAL`` steps."""

    def __init__(self, engine: EngineCore) -> None:
        self._engine = engine

    def after_step(self, plan: StepPlan) -> None:
        check_plan(self._engine, plan)
        if plan.step_id % FULL_CHECK_INTERVAL == 0:
            check(self._engine)


def check_plan(engine: EngineCore, plan: StepPlan) -> None:
    """Budget and caps: what one plan may hold."""
    config = engine.config
    _require(0 < plan.num_tokens <= config.max_num_batched_tokens, f"{plan.num_tokens} tokens in step {plan.step_id}")
    _require(plan.num_rows <= plan.num_running <= config.max_num_seqs, f"{plan.num_running} requests run at once")
    _require(bool((plan.num_new > 0).all()), "a row without tokens")
    _require(int(plan.num_new.sum()) == plan.num_tokens, "token count and rows disagree")
    _require(len(set(plan.request_ids.tolist())) == plan.num_rows, "a request has two rows")
    _require(int(plan.num_new_blocks.sum()) == len(plan.new_block_ids), "block count and block ids disagree")
    _require(0 <= plan.num_free_blocks <= config.num_blocks, f"{plan.num_free_blocks} free blocks")


def check(engine: EngineCore) -> None:
    """Everything: conservation of requests and blocks, and the bounds of every counter."""
    state: SchedulerState = engine._state  # noqa: SLF001 - the checker looks inside by design
    _check_requests(state)
    _check_blocks(state)
    _check_counters(state)


def _check_requests(state: SchedulerState) -> None:
    found = Counter(request.request_id for request in [*state.queue, *state.running.requests])
    _require(found == Counter(state.requests.keys()), "every unfinished request is in exactly one place")
    _require(all(request.is_running for request in state.running.requests), "a running request owns no block")
    _require(not any(request.is_running for request in state.queue), "a waiting request owns blocks")
    rows = state.running
    ids = [request.request_id for request in rows.requests]
    _require(rows.request_ids[: rows.size].tolist() == ids, "rows and requests disagree")


def _check_blocks(state: SchedulerState) -> None:
    pool = state.pool
    owned = Counter(block for request in state.running.requests for block in request.block_ids)
    free = list(pool.free_blocks())
    _require(len(free) == pool.num_free == len(set(free)), "the free list is broken")
    _require(pool.num_free + len(owned) == pool.num_blocks, "a block is neither free nor owned")
    for block in range(pool.num_blocks):
        _require(pool.references(block) == owned[block], f"block {block} counts {pool.references(block)} references")
    found = pool.cache.as_dict()
    for block, key in enumerate(pool.cache.keys):
        if key is not None:
            _require(block in found.get(key, ()), f"block {block} is cached but cannot be found")
            _require(pool.cache.find(key) == found[key][0], f"the oldest block is not the one found for block {block}")


def _check_counters(state: SchedulerState) -> None:
    table, size = state.running, state.running.size
    tokens, computed = table.num_tokens[:size], table.num_computed[:size]
    _require(bool((computed < tokens).all()), "a running request has nothing to compute")
    _require(bool((tokens < table.stop_at[:size]).all()), "a request outlived its stop rule")
    _require(bool((computed <= table.capacity[:size]).all()), "tokens without a block")
    for row, request in enumerate(table.requests):
        _require(
            len(request.block_ids) * state.config.block_size == table.capacity[row], "capacity and blocks disagree"
        )


def state_of(engine: EngineCore) -> dict[str, Any]:
    """All that a step may change, as plain comparable values; equal before ``begin_step`` and after ``cancel_step``."""
    state: SchedulerState = engine._state  # noqa: SLF001 - the checker looks inside by design
    pool, table, size = state.pool, state.running, state.running.size
    columns = ("request_ids", "num_tokens", "num_computed", "capacity", "stop_at", "check_at", "entry_tokens")
    return {
        "queue": [(request.request_id, request.requeue, request.num_bypassed) for request in state.queue],
        "running": {name: getattr(table, name)[:size].tolist() for name in columns},
        "requests": {
            request_id: (list(request.block_ids), list(request.block_keys), request.num_output_tokens)
            for request_id, request in state.requests.items()
        },
        "free": list(pool.free_blocks()),
        "references": [pool.references(block) for block in range(pool.num_blocks)],
        "keys": list(pool.cache.keys),
        "cached": pool.cache.as_dict(),
    }


def _require(holds: bool, complaint: str) -> None:
    if not holds:
        raise InvariantError(complaint)
