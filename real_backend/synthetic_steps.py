"""Steps without a scheduler: rows of a given context, run on a runner as often as one likes.

``start`` runs the rows once, which takes slots and block tables; the plan it returns is the same step with nothing new,
so that every repetition computes the same tokens on the same pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from real_backend.engine_loader import LoadedEngine
from real_backend.errors import EngineError
from sched_core.config import SchedulerConfig
from sched_core.plan import Ints, StartedRequest, StepPlan
from sched_core.prompt import Prompt
from sched_core.spec import RequestSpec

_NOTHING: tuple[int, ...] = ()


class SyntheticRow(NamedTuple):
    """A row that computes tokens ``[num_computed, num_computed + num_new)`` of its request and samples one."""

    num_computed: int
    num_new: int

    @property
    def context(self) -> int:
        return self.num_computed + self.num_new


@contextmanager
def running(loaded: LoadedEngine, rows: Sequence[SyntheticRow]) -> Iterator[StepPlan]:
    """The plan of ``rows``, run once; it can be launched again and again while the block lasts.

    Raises:
        EngineError: the engine cannot hold these rows.
    """
    first = starting_plan(rows, loaded.scheduler)
    try:
        loaded.runner.launch(first)
        loaded.runner.collect()
        yield repeated(first)
    finally:
        loaded.runner.release(first.request_ids.tolist())


def starting_plan(rows: Sequence[SyntheticRow], scheduler: SchedulerConfig) -> StepPlan:
    """The step in which every row is new to the engine, its blocks scattered over the pool.

    Raises:
        EngineError: the rows are beyond the scheduler's limits or its pool.
    """
    counts = np.array([-(-row.context // scheduler.block_size) for row in rows], dtype=np.int64)
    _check(rows, int(counts.sum()), scheduler)
    block_ids = scattered_blocks(int(counts.sum()), scheduler.num_blocks)
    tables = np.split(block_ids, np.cumsum(counts)[:-1])
    num_new = np.array([row.num_new for row in rows], dtype=np.int64)
    return StepPlan(
        step_id=0,
        request_ids=np.arange(len(rows)),
        num_computed=np.array([row.num_computed for row in rows], dtype=np.int64),
        num_new=num_new,
        samples=np.ones(len(rows), dtype=np.bool_),
        num_new_blocks=counts,
        new_block_ids=block_ids,
        started=tuple(_started(index, row, table) for index, (row, table) in enumerate(zip(rows, tables, strict=True))),
        preempted=(),
        num_tokens=int(num_new.sum()),
        num_samples=len(rows),
        num_waiting=0,
        num_running=len(rows),
        num_free_blocks=scheduler.num_blocks - len(block_ids),
    )


def repeated(plan: StepPlan) -> StepPlan:
    """``plan`` once more, for requests that are running by now."""
    return plan._replace(
        num_new_blocks=np.zeros(plan.num_rows, dtype=np.int64),
        new_block_ids=np.array(_NOTHING, dtype=np.int64),
        started=(),
    )


def scattered_blocks(count: int, num_blocks: int) -> Ints:
    """``count`` different blocks of the pool, neighbours far apart as in an engine that has run for a while."""
    stride = max(int(num_blocks * 0.618), 1)
    while np.gcd(stride, num_blocks) != 1:
        stride += 1
    return np.arange(count, dtype=np.int64) * stride % num_blocks


def _started(request_id: int, row: SyntheticRow, block_ids: Ints) -> StartedRequest:
    prompt = Prompt.of_stream(request_id, row.context)
    return StartedRequest(
        spec=RequestSpec(request_id=request_id, prompt=prompt, max_tokens=1),
        resumed=False,
        num_cached_tokens=0,
        output_token_ids=(),
        block_ids=tuple(block_ids.tolist()),
    )


def _check(rows: Sequence[SyntheticRow], num_blocks: int, scheduler: SchedulerConfig) -> None:
    """Every limit that the rows must keep, and the setting that draws it."""
    limits = (
        (max(row.context for row in rows), scheduler.max_model_len, "tokens of context", "engine.max_model_len"),
        (len(rows), scheduler.max_num_seqs, "rows", "engine.max_num_seqs"),
        (sum(row.num_new for row in rows), scheduler.max_num_batched_tokens, "tokens", "engine.max_num_batched_tokens"),
        (num_blocks, scheduler.num_blocks, f"KV blocks of {scheduler.block_size} tokens", "the pool"),
    )
    for needed, available, what, who in limits:
        if needed > available:
            raise EngineError(f"it needs {needed} {what}, {who} has {available}")
