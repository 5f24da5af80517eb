"""From a shape to plans that a runner can launch: made-up requests on scattered blocks of the KV pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from twinserve.real_backend.profiling.shape import Limits, Row, Shape
from twinserve.sched_core.plan import Ints, StartedRequest, StepPlan
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec

FIRST_REQUEST_ID = 1 << 32
"""Above the ids of any workload, so that no request of an engine run is meant."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedShape:
    """A shape with requests and blocks; ``num_free_blocks`` are left in the pool."""

    shape: Shape
    specs: tuple[RequestSpec, ...]
    block_ids: tuple[tuple[int, ...], ...]
    block_size: int
    num_free_blocks: int

    @property
    def request_ids(self) -> list[int]:
        return [spec.request_id for spec in self.specs]

    def plan(self, step_id: int, num_started: int) -> StepPlan:
        """The step as a plan in which the last ``num_started`` rows enter the batch, with their context computed."""
        rows = self.shape.rows
        first = len(rows) - num_started
        tables = [self._granted(row, table) for row, table in zip(rows[first:], self.block_ids[first:], strict=True)]
        samples = np.array([row.samples for row in rows], dtype=np.bool_)
        return StepPlan(
            step_id=step_id,
            request_ids=_ints(self.request_ids),
            num_computed=_ints([row.num_computed for row in rows]),
            num_new=_ints([row.num_new for row in rows]),
            samples=samples,
            num_new_blocks=_ints([0] * first + [len(table) for table in tables]),
            new_block_ids=_ints([block for table in tables for block in table]),
            started=tuple(self._started(index) for index in range(first, len(rows))),
            preempted=(),
            num_tokens=self.shape.num_tokens,
            num_samples=int(samples.sum()),
            num_waiting=0,
            num_running=len(rows),
            num_free_blocks=self.num_free_blocks,
        )

    def _granted(self, row: Row, table: tuple[int, ...]) -> tuple[int, ...]:
        """The blocks that a scheduler would grant for this step, behind those of the cached context."""
        return table[row.num_computed // self.block_size :]

    def _started(self, index: int) -> StartedRequest:
        return StartedRequest(
            spec=self.specs[index],
            resumed=False,
            num_cached_tokens=self.shape.rows[index].num_computed,
            output_token_ids=(),
            block_ids=self.block_ids[index],
        )


class Placer:
    """Gives each shape fresh requests, and blocks from all over the pool: neighbouring ones would flatter the cache."""

    def __init__(self, limits: Limits, seed: Sequence[int]) -> None:
        self._limits = limits
        self._rng = np.random.default_rng(seed)
        self._scattered = self._rng.permutation(limits.num_blocks)
        self._ids = count(FIRST_REQUEST_ID)

    def place(self, shape: Shape) -> PlacedShape:
        """Distinct blocks for every row of a shape that the limits admit."""
        size = self._limits.block_size
        counts = [-(-row.context // size) for row in shape.rows]
        begin = int(self._rng.integers(self._limits.num_blocks))
        taken = self._scattered.take(np.arange(begin, begin + sum(counts)), mode="wrap")
        tables = np.split(taken, np.cumsum(counts)[:-1])
        return PlacedShape(
            shape=shape,
            specs=tuple(_request(next(self._ids), row) for row in shape.rows),
            block_ids=tuple(tuple(table.tolist()) for table in tables),
            block_size=size,
            num_free_blocks=self._limits.num_blocks - sum(counts),
        )


def _request(request_id: int, row: Row) -> RequestSpec:
    """A prompt of random ids that ends where the row samples; drawn with the sampling parameters of a workload."""
    return RequestSpec(request_id=request_id, prompt=Prompt.of_stream(request_id, row.num_known), max_tokens=1)


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)
