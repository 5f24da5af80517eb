"""The step being planned: the mechanism that every batch composition drives.

Chunks, blocks and preemption of running rows are written here, once; ``admitting.py`` lets waiting requests in. Rows
of the running table keep their numbers until the draft is done; preempted ones are marked and removed at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twinserve.sched_core.admitting import Admitter
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.errors import SchedulerError
from twinserve.sched_core.plan import ZERO, Ints, StartedRequest
from twinserve.sched_core.policies.interfaces import Candidate, Candidates, Rows
from twinserve.sched_core.scheduled_rows import RowGroup, ScheduledRows
from twinserve.sched_core.state import SchedulerState


class Draft:
    """Implements ``StepDraft`` and ``AdmissionState``."""

    def __init__(self, state: SchedulerState, now: int, budget: int, defer_prefill: bool) -> None:
        self._state = state
        self._table = state.running
        self._pool = state.pool
        self.now = now
        self._defer_prefill = defer_prefill
        self._chunk_cap = _chunk_cap(state, budget)
        self.scheduled = ScheduledRows(budget)
        self.started: list[StartedRequest] = []
        self.preempted: list[int] = []
        self.preempted_rows: list[int] = []

    @property
    def is_empty(self) -> bool:
        return self.scheduled.num_tokens == 0

    @property
    def budget(self) -> int:
        return self.scheduled.budget

    @property
    def holds_prefill(self) -> bool:
        """True when this step holds prefill work back."""
        return self._defer_prefill

    @property
    def num_waiting(self) -> int:
        return len(self._state.queue)

    @property
    def num_decodes(self) -> int:
        table = self._table
        decodes = self._alive((table.remaining() == 1).nonzero()[0])
        return len(decodes)

    @property
    def num_running(self) -> int:
        return self._table.size - len(self.preempted_rows)

    @property
    def num_free_blocks(self) -> int:
        return self._pool.num_free

    @property
    def config(self) -> SchedulerConfig:
        return self._state.config

    @property
    def batch_is_fresh(self) -> bool:
        size = self._table.size
        return not bool((self._table.num_tokens[:size] > self._table.entry_tokens[:size] + 1).any())

    def run(self, rows: Rows, at_most: int | None = None) -> None:
        if self.started:
            raise SchedulerError("a composition must not run rows after it has admitted requests")
        pending, left = self._select(rows), at_most
        while len(pending):
            budget = self.scheduled.budget if left is None else min(left, self.scheduled.budget)
            if budget <= 0:
                return
            group = self._hand_out(pending, budget)
            num_placed = self._place(group)
            if num_placed == len(pending):
                return
            if left is not None:
                left -= int(group.tokens[:num_placed].sum())
            pending = self._alive(pending[num_placed:])

    def admit(self, at_most: int | None = None, *, split_first_only: bool = False) -> None:
        # vLLM: blocks that were just taken from one request are not given to a new one in the same step.
        if self.preempted_rows or not len(self._state.queue):
            return
        admitter = Admitter(
            self._state,
            self.scheduled,
            self,
            chunk_cap=self._chunk_cap,
            floor=0 if at_most is None else max(self.scheduled.budget - at_most, 0),
            split_first_only=split_first_only,
            held=self._defer_prefill,
        )
        admitter.run()
        self.started += admitter.started

    def _select(self, rows: Rows) -> Ints:
        table = self._table
        if self._defer_prefill:
            selected = table.all_rows[:0] if rows is Rows.PREFILLS else table.decoding()
        elif rows is Rows.ALL:
            selected = table.all_rows[: len(table.requests)]
        elif rows is Rows.PREFILLS:
            selected = (table.remaining() > 1).nonzero()[0]
        else:
            selected = (table.remaining() == 1).nonzero()[0]
        if self.preempted_rows or self.scheduled.num_tokens:
            selected = self._alive(self.scheduled.without(selected))
        return self._ranked(selected) if self._state.policies.order.ranks_running else selected

    def _ranked(self, rows: Ints) -> Ints:
        order, requests, now = self._state.policies.order, self._table.requests, self.now
        ranked = sorted(rows.tolist(), key=lambda row: (order.rank(requests[row], now), row))
        return np.array(ranked, dtype=np.int64)

    def _alive(self, rows: Ints) -> Ints:
        return rows[~np.isin(rows, self.preempted_rows)] if self.preempted_rows else rows

    def _hand_out(self, rows: Ints, budget: int) -> RowGroup:
        """Cap each row's chunk, then hand out ``budget`` tokens in order; rows that get nothing are left out."""
        computed = self._table.num_computed[rows]
        tokens = self._table.num_tokens[rows] - computed
        if self._chunk_cap is not None:
            tokens = np.minimum(tokens, self._chunk_cap)
        sums = np.add.accumulate(tokens)
        total = sums.item(-1)
        if total > budget:
            last = int(sums.searchsorted(budget))
            rows, computed, tokens = rows[: last + 1], computed[: last + 1], tokens[: last + 1].copy()
            tokens[last] -= sums.item(last) - budget
            total = budget
        return RowGroup(rows, computed, tokens, computed + tokens, total)

    def _place(self, group: RowGroup) -> int:
        """Schedule the rows of ``group``, taking blocks as needed.

        Returns how many rows were dealt with: all of them, or up to and including the one for which something was
        preempted (what is left then has to be handed out again).
        """
        available, size = self._pool.num_free, self._state.config.block_size
        num_rows = len(group.rows)
        if num_rows + group.num_tokens // size <= available:  # a row needs one block more than its tokens fill at most
            self._commit(group)
            return num_rows
        num_blocks = _blocks_short_of(self._table.capacity[group.rows] - group.ends, self._table.block_size)
        short = num_blocks.cumsum() > available
        if not short.any():
            self._commit(group)
            return num_rows
        index = int(short.argmax())  # the first row that finds too few blocks
        if index > 0:
            self._commit(group.part(slice(index)))
        if self._make_room(int(group.rows[index]), int(num_blocks[index])):
            self._commit(group.part(slice(index, index + 1)))
        return index + 1

    def _commit(self, group: RowGroup) -> None:
        """Schedule rows whose blocks are free: take them, and make the blocks that are filled findable."""
        rows, computed, _, ends, _ = group
        table = self._table
        spare = table.capacity[rows] - ends
        edge = (spare <= ZERO).nonzero()[0]  # other rows neither take nor fill a block
        num_blocks = np.zeros(len(rows), np.int64)
        taken: list[int] = []
        if len(edge):
            num_blocks[edge] = needed = _blocks_short_of(spare[edge], table.block_size)
            at_edge = rows[edge]
            requests = [table.requests[row] for row in at_edge.tolist()]
            starts, stops = computed[edge].tolist(), ends[edge].tolist()
            taken = self._state.blocks.advance(requests, starts, stops, needed.tolist())
            if taken:
                table.grow(at_edge, needed)
        self.scheduled.add(group, num_blocks, taken)

    def _make_room(self, row: int, num_blocks: int) -> bool:
        """Preempt until ``num_blocks`` are free; False when ``row`` itself had to go."""
        while self._pool.num_free < num_blocks:
            victim = self._choose_victim()
            self._preempt(victim)
            if victim == row:
                return False
        return True

    def _choose_victim(self) -> int:
        rows = self._alive_rows()
        return rows[self._state.policies.victim.choose(Candidates(self._table, rows))]

    def candidates(self) -> Sequence[Candidate]:
        return Candidates(self._table, self._alive_rows())

    def _alive_rows(self) -> list[int]:
        rows: list[int] = self._alive(self._table.all_rows[: self._table.size]).tolist()
        return rows

    def _preempt(self, row: int) -> None:
        """Take a row's blocks and tokens back and put its request at the front of the queue."""
        self._state.outputs.settle()
        request = self._table.sync(row)
        if self.scheduled.remove(row):
            self._state.blocks.unregister_from(request, int(self._table.num_computed[row]))
        self._state.blocks.free(request)
        self._state.queue.push_front(request)
        self.preempted_rows.append(row)
        self.preempted.append(request.request_id)


def _chunk_cap(state: SchedulerState, budget: int) -> int | None:
    """The most tokens one request may get, None when there is no cap (vLLM: none for a request that is alone)."""
    threshold = state.config.long_prefill_token_threshold
    num_requests = len(state.requests)
    if threshold == 0 or num_requests <= 1:
        return None
    if state.config.long_prefill_token_threshold_adaptive:
        return max(threshold, budget // num_requests)
    return threshold


def _blocks_short_of(spare: Ints, block_size: Ints) -> Ints:
    """Blocks that rows with ``spare`` tokens of room need.

    Room is below ``block_size``, as no block is owned before it is needed; rounded down, so that -1 takes a block.
    """
    needed: Ints = -(spare // block_size)
    return needed
