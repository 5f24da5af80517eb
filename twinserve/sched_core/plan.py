"""One step as a value: what to compute (``StepPlan``) and what came out (``StepResult``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from twinserve.sched_core.requests.spec import RequestSpec

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

# numpy computes with an array of no dimensions in half the time that a Python number takes.
ZERO, ONE = np.array(0), np.array(1)


class StartedRequest(NamedTuple):
    """A request that enters the batch in this step, for the first time or again after a preemption.

    A model runner learns here, once, all it needs to know: prompt and sampling parameters (in ``spec``), the token
    ids sampled before a preemption (``output_token_ids``, empty at first and in simulations that make ids up), and
    every block of its table so far (``block_ids``, prefix hits first).
    """

    spec: RequestSpec
    resumed: bool
    num_cached_tokens: int
    output_token_ids: tuple[int, ...]
    block_ids: tuple[int, ...]


class StepPlan(NamedTuple):
    """The batch of one step, one entry per row in every column; rows are in scheduling order.

    Row ``i`` computes tokens ``[num_computed[i], num_computed[i] + num_new[i])`` of request ``request_ids[i]``.
    ``samples[i]`` is true when that reaches the request's last known token, so that the row yields a new one.
    Blocks granted in this step lie flat in ``new_block_ids``; row ``i`` owns ``num_new_blocks[i]`` of them (for a
    started request these are the blocks after its prefix hits). ``started`` rows are the last ``len(started)``
    rows, in the same order. ``preempted`` lost their blocks before this step ran. ``num_waiting`` and
    ``num_running`` are the queue lengths after planning, ``num_free_blocks`` the pool's. Compare plans by
    ``to_bytes``.
    """

    step_id: int
    request_ids: Ints
    num_computed: Ints
    num_new: Ints
    samples: Bools
    num_new_blocks: Ints
    new_block_ids: Ints
    started: tuple[StartedRequest, ...]
    preempted: tuple[int, ...]
    num_tokens: int
    num_samples: int
    num_waiting: int
    num_running: int
    num_free_blocks: int

    @property
    def num_rows(self) -> int:
        return len(self.request_ids)

    @property
    def num_hit_blocks(self) -> tuple[int, ...]:
        """Blocks that each started row found in the prefix cache."""
        granted = self.num_new_blocks[self.num_rows - len(self.started) :].tolist()
        return tuple(len(start.block_ids) - new for start, new in zip(self.started, granted, strict=True))

    @property
    def hit_block_ids(self) -> tuple[int, ...]:
        """These blocks, flat."""
        hits = zip(self.started, self.num_hit_blocks, strict=True)
        return tuple(block for start, count in hits for block in start.block_ids[:count])

    def to_bytes(self) -> bytes:
        """The decision as bytes: equal for two runs exactly when the scheduler decided the same.

        Step, rows, new blocks and preempted requests, and the blocks that started rows hit; every list has its length.
        """
        rows = (self.request_ids, self.num_computed, self.num_new, self.num_new_blocks, self.new_block_ids)
        parts = [np.array([self.step_id], dtype=np.int64)]
        for values in (*rows, self.preempted, self.num_hit_blocks, self.hit_block_ids):
            parts += [np.array([len(values)], dtype=np.int64), np.array(values, dtype=np.int64)]
        return b"".join(part.tobytes() for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Nothing to run. ``wake_at`` (ns) is when a policy wants to be asked again, None when only an arrival helps."""

    wake_at: int | None = None


class StepResult(NamedTuple):
    """What a backend reports for one step.

    ``token_ids`` has one id per sampling row, in row order; None lets the core make ids up, unique per request and
    position. ``ended`` holds the positions *within the sampling rows* whose request ended by the backend's word (a
    scripted length); end-of-sequence and stop ids are found by the core.
    """

    token_ids: Ints | None = None
    ended: tuple[int, ...] = ()
