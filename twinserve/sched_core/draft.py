"""The step being planned: the mechanism that every batch composition drives.

Token budget, sequence cap, block accounting and preemption are written here, once. Rows of the running table keep
their numbers until the draft is done; preempted ones are marked and removed at the end.
"""

from __future__ import annotations

import numpy as np

from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.errors import SchedulerError
from twinserve.sched_core.limits import chunk_cap, stop_length
from twinserve.sched_core.plan import Ints, StartedRequest
from twinserve.sched_core.policies.interfaces import Candidate, Rows
from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.schedule import Schedule, Share
from twinserve.sched_core.state import SchedulerState

_ZERO = np.array(0)  # comparing with an array of no dimensions is faster than with a Python number


class Draft:
    """Implements ``StepDraft`` and ``AdmissionState``.

    ``num_tokens`` have been scheduled so far; ``budget`` is what is left of the step's tokens.
    """

    def __init__(self, state: SchedulerState, now: int, budget: int, defer_prefill: bool) -> None:
        self._state = state
        self._table = state.running
        self._pool = state.pool
        self.now = now
        self._defer_prefill = defer_prefill
        self._chunk_cap = chunk_cap(state, budget)
        self.budget = budget
        self.num_tokens = 0
        self.schedule = Schedule()
        self.started: list[StartedRequest] = []
        self.preempted: list[int] = []
        self.preempted_rows: list[int] = []

    @property
    def is_empty(self) -> bool:
        return self.num_tokens == 0

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

    def run(self, rows: Rows) -> None:
        if self.started:
            raise SchedulerError("a composition must not run rows after it has admitted requests")
        pending = self._select(rows)
        while len(pending) and self.budget > 0:
            served, computed, tokens, num_tokens = self._hand_out(pending)
            num_placed = self._place(served, computed, tokens, num_tokens)
            if num_placed == len(pending):
                return
            pending = self._alive(pending[num_placed:])

    def admit(self, *, split_first_only: bool = False) -> None:
        # vLLM: blocks that were just taken from one request are not given to a new one in the same step.
        if self.preempted_rows or self._defer_prefill:
            return
        queue = self._state.queue
        while len(queue) and self._has_room():
            head = queue.peek()
            if not self._admit(head, split_first_only):
                self._bypass(head, split_first_only)
                return

    def _select(self, rows: Rows) -> Ints:
        table = self._table
        if rows is Rows.ALL and not self._defer_prefill:
            selected = table.all_rows[: len(table.requests)]
        elif rows is Rows.PREFILLS:
            selected = table.all_rows[:0] if self._defer_prefill else (table.remaining() > 1).nonzero()[0]
        else:
            selected = (table.remaining() == 1).nonzero()[0]
        if self.preempted_rows or self.num_tokens:
            selected = self._alive(self.schedule.without(selected))
        return self._ranked(selected) if self._state.policies.order.ranks_running else selected

    def _ranked(self, rows: Ints) -> Ints:
        order, requests, now = self._state.policies.order, self._table.requests, self.now
        ranked = sorted(rows.tolist(), key=lambda row: (order.rank(requests[row], now), row))
        return np.array(ranked, dtype=np.int64)

    def _alive(self, rows: Ints) -> Ints:
        return rows[~np.isin(rows, self.preempted_rows)] if self.preempted_rows else rows

    def _hand_out(self, rows: Ints) -> tuple[Ints, Ints, Ints, int]:
        """Cap each row's chunk, then hand out the budget in order; rows that get nothing are left out.

        Returns the rows, the tokens that each has computed and is given, and the tokens given in all.
        """
        computed = self._table.num_computed[rows]
        tokens = self._table.num_tokens[rows] - computed
        if self._chunk_cap is not None:
            tokens = np.minimum(tokens, self._chunk_cap)
        sums = np.add.accumulate(tokens)
        total = sums.item(-1)
        if total <= self.budget:
            return rows, computed, tokens, total
        last = int(sums.searchsorted(self.budget))
        tokens = tokens[: last + 1].copy()
        tokens[last] -= sums.item(last) - self.budget
        return rows[: last + 1], computed[: last + 1], tokens, self.budget

    def _place(self, rows: Ints, computed: Ints, tokens: Ints, num_tokens: int) -> int:
        """Schedule ``rows`` with their ``num_tokens`` tokens in all, taking blocks as needed.

        Returns how many rows were dealt with: all of them, or up to and including the one for which something was
        preempted (what is left then has to be handed out again).
        """
        available, size = self._pool.num_free, self._state.config.block_size
        if len(rows) + num_tokens // size <= available:  # a row needs at most one block more than its tokens fill
            self._commit(rows, computed, tokens, num_tokens)
            return len(rows)
        num_blocks = _blocks_short_of(self._table.capacity[rows] - computed - tokens, self._table.block_size)
        short = num_blocks.cumsum() > available
        if not short.any():
            self._commit(rows, computed, tokens, num_tokens)
            return len(rows)
        index = int(short.argmax())  # the first row that finds too few blocks
        if index > 0:
            self._commit(rows[:index], computed[:index], tokens[:index], int(tokens[:index].sum()))
        if self._make_room(int(rows[index]), int(num_blocks[index])):
            row = slice(index, index + 1)
            self._commit(rows[row], computed[row], tokens[row], int(tokens[index]))
        return index + 1

    def _commit(self, rows: Ints, computed: Ints, tokens: Ints, num_tokens: int) -> None:
        """Schedule rows whose blocks are free: take them, and make the blocks that are filled findable."""
        self.budget -= num_tokens
        self.num_tokens += num_tokens
        table, ends = self._table, computed + tokens
        spare = table.capacity[rows] - ends
        edge = (spare <= _ZERO).nonzero()[0]  # other rows neither take nor fill a block
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
        self.schedule.add(Share(rows, computed, tokens, ends, num_blocks), taken)

    def _make_room(self, row: int, num_blocks: int) -> bool:
        """Preempt until ``num_blocks`` are free; False when ``row`` itself had to go."""
        while self._pool.num_free < num_blocks:
            victim = self._choose_victim()
            self._preempt(victim)
            if victim == row:
                return False
        return True

    def _choose_victim(self) -> int:
        return self._alive_rows()[self._state.policies.victim.choose(self.candidates())]

    def candidates(self) -> list[Candidate]:
        return [self._candidate(row) for row in self._alive_rows()]

    def _alive_rows(self) -> list[int]:
        rows: list[int] = self._alive(self._table.all_rows[: self._table.size]).tolist()
        return rows

    def _candidate(self, row: int) -> Candidate:
        table = self._table
        return Candidate(
            request=table.requests[row],
            num_computed=int(table.num_computed[row]),
            num_tokens=int(table.num_tokens[row]),
        )

    def _preempt(self, row: int) -> None:
        """Take a row's blocks and tokens back and put its request at the front of the queue."""
        self._state.outputs.settle()
        request = self._table.sync(row)
        tokens = self.schedule.remove(row)
        if tokens:
            self.budget += tokens
            self.num_tokens -= tokens
            self._state.blocks.unregister_from(request, int(self._table.num_computed[row]))
        self._state.blocks.free(request)
        self._state.queue.push_front(request)
        self.preempted_rows.append(row)
        self.preempted.append(request.request_id)

    def _has_room(self) -> bool:
        return self.budget > 0 and self.num_running < self._state.config.max_num_seqs

    def _bypass(self, head: Request, split_first_only: bool) -> None:
        """Admit later requests past a blocked head, at most ``max_head_bypass`` over its whole wait."""
        limit, queue = self._state.config.max_head_bypass, self._state.queue
        for request in [queue.peek(position) for position in range(1, min(len(queue), limit + 1))]:
            if head.num_bypassed >= limit or not self._has_room():
                return
            if self._admit(request, split_first_only):
                self._state.journal.record((setattr, head, "num_bypassed", head.num_bypassed))
                head.num_bypassed += 1

    def _admit(self, request: Request, split_first_only: bool) -> bool:
        """Move a waiting request into the batch if its first chunk can run now."""
        blocks = self._state.blocks
        hits = blocks.find_hits(request)
        computed = len(hits) * blocks.block_size
        chunk = self._first_chunk(request, request.num_tokens - computed, split_first_only)
        if chunk == 0:
            return False
        num_new = blocks.blocks_for(computed + chunk) - len(hits)
        if not self._fits(request, hits, num_new):
            return False
        self._state.queue.remove(request)
        blocks.pin(request, hits)
        taken = blocks.advance([request], [computed], [computed + chunk], [num_new])
        self.budget -= chunk
        self.num_tokens += chunk
        self.schedule.add_row(self._table.size, computed, chunk, taken)
        self._append(request, computed)
        self.started.append(
            StartedRequest(
                spec=request.spec,
                resumed=request.resumes,
                num_cached_tokens=computed,
                output_token_ids=tuple(request.output_ids),
                block_ids=tuple(request.block_ids),
            )
        )
        return True

    def _first_chunk(self, request: Request, wanted: int, split_first_only: bool) -> int:
        """Tokens of the first chunk, 0 when it must wait.

        With chunked prefill off a prompt is never cut, but a preempted request may be: with its output it can have
        outgrown the budget, and would otherwise never run again.
        """
        if self._chunk_cap is not None:
            wanted = min(wanted, self._chunk_cap)
        if wanted <= self.budget:
            return wanted
        may_split = self._state.config.enable_chunked_prefill or request.resumes
        return self.budget if may_split and (self.is_empty or not split_first_only) else 0

    def _fits(self, request: Request, hits: list[int], num_new: int) -> bool:
        config, pool, blocks = self._state.config, self._pool, self._state.blocks
        needed = blocks.blocks_for(request.num_tokens) - len(hits) if config.scheduler_reserve_full_isl else num_new
        reserved = int(config.watermark * config.num_blocks) if self.num_running else 0
        needed += pool.num_free_among(hits)
        if needed > pool.num_free - reserved:
            return False
        return self._state.policies.admission.may_admit(request, needed, self)

    def _append(self, request: Request, computed: int) -> None:
        size = self._state.config.block_size
        self._table.append(
            request,
            num_computed=computed,
            capacity=len(request.block_ids) * size,
            stop_at=stop_length(self._state, request),
            key_at=(request.num_tokens // size + 1) * size,
        )


def _blocks_short_of(spare: Ints, block_size: Ints) -> Ints:
    """Blocks that rows with ``spare`` tokens of room need.

    Room is below ``block_size``, as no block is owned before it is needed; rounded down, so that -1 takes a block.
    """
    needed: Ints = -(spare // block_size)
    return needed
