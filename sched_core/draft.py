"""The step being planned: the mechanism that every batch composition drives.

Token budget, sequence cap, block accounting and preemption are written here, once. Rows of the running table keep
their numbers until the draft is done; preempted ones are marked and removed at the end.
"""

from __future__ import annotations

import numpy as np

from sched_core.config import SchedulerConfig
from sched_core.errors import SchedulerError
from sched_core.limits import chunk_cap, stop_length
from sched_core.plan import Ints, StartedRequest
from sched_core.policies.interfaces import Candidate, Rows
from sched_core.request import Request
from sched_core.schedule import Schedule, Share
from sched_core.state import SchedulerState


class Draft:
    """Implements ``StepDraft`` and ``AdmissionState``. ``budget`` is what is left of the step's tokens."""

    def __init__(self, state: SchedulerState, *, now: int, budget: int, defer_prefill: bool) -> None:
        self._state = state
        self._table = state.running
        self._pool = state.pool
        self.now = now
        self._defer_prefill = defer_prefill
        self._chunk_cap = chunk_cap(state, budget)
        self._whole_budget = budget
        self.budget = budget
        self.schedule = Schedule()
        self.started: list[StartedRequest] = []
        self.preempted: list[int] = []
        self.preempted_rows: list[int] = []

    @property
    def is_empty(self) -> bool:
        return self.budget == self._whole_budget

    @property
    def num_tokens(self) -> int:
        """Tokens scheduled so far."""
        return self._whole_budget - self.budget

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
            num_placed = self._place(*self._share(pending))
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
        if self.preempted_rows or not self.is_empty:
            selected = self._alive(self.schedule.without(selected))
        return self._ranked(selected) if self._state.policies.order.ranks_running else selected

    def _ranked(self, rows: Ints) -> Ints:
        order, requests, now = self._state.policies.order, self._table.requests, self.now
        ranked = sorted(rows.tolist(), key=lambda row: (order.rank(requests[row], now), row))
        return np.array(ranked, dtype=np.int64)

    def _alive(self, rows: Ints) -> Ints:
        return rows[~np.isin(rows, self.preempted_rows)] if self.preempted_rows else rows

    def _share(self, rows: Ints) -> tuple[Share, int]:
        """What ``rows`` may compute in order until the budget is gone, with the blocks needed; and tokens in all."""
        table = self._table
        computed = table.num_computed[rows]
        tokens, total = self._hand_out(table.num_tokens[rows] - computed)
        if len(tokens) < len(rows):
            rows, computed = rows[: len(tokens)], computed[: len(tokens)]
        # Below block_size, as no block is owned before it is needed; rounded down, so that -1 takes a block.
        spare = table.capacity[rows] - computed - tokens
        return Share(rows, computed, tokens, -(spare // self._state.config.block_size), spare <= 0), total

    def _hand_out(self, wanted: Ints) -> tuple[Ints, int]:
        """Cap each row's chunk, then hand out the budget in order; rows that get nothing are left out."""
        if self._chunk_cap is not None:
            wanted = np.minimum(wanted, self._chunk_cap)
        ends = np.add.accumulate(wanted)
        total = int(ends[-1])
        if total <= self.budget:
            return wanted, total
        last = int(ends.searchsorted(self.budget))
        shared = wanted[: last + 1].copy()
        shared[last] -= ends[last] - self.budget
        return shared, self.budget

    def _place(self, share: Share, num_tokens: int) -> int:
        """Schedule a share of ``num_tokens`` in all, taking blocks as needed.

        Returns how many rows were dealt with: all of them, or up to and including the one for which something was
        preempted (what is left then has to be handed out again).
        """
        available, size = self._pool.num_free, self._state.config.block_size
        most = len(share.rows) + num_tokens // size  # a row needs at most one block more than its tokens fill
        if most <= available or int(np.add.reduce(share.num_blocks)) <= available:
            self._commit(share, num_tokens)
            return len(share.rows)
        index = int((share.num_blocks.cumsum() > available).argmax())  # the first row that finds too few blocks
        if index > 0:
            self._commit(share.part(0, index), int(share.tokens[:index].sum()))
        if self._make_room(int(share.rows[index]), int(share.num_blocks[index])):
            self._commit(share.part(index, index + 1), int(share.tokens[index]))
        return index + 1

    def _commit(self, share: Share, num_tokens: int) -> None:
        """Schedule a share whose blocks are free: take them, and make the blocks that it fills findable."""
        self.budget -= num_tokens
        edge = share.at_edge.nonzero()[0]
        self.schedule.add(share, self._take_blocks(share, edge) if len(edge) else [])

    def _take_blocks(self, share: Share, edge: Ints) -> list[int]:
        """Give the rows at these positions, the only ones that take or fill blocks, their new blocks; returns them."""
        rows, num_blocks = share.rows[edge], share.num_blocks[edge]
        counts, requests = num_blocks.tolist(), self._table.requests
        if any(counts):
            self._table.grow(rows, num_blocks * self._state.config.block_size)
        return self._state.blocks.advance(
            [requests[row] for row in rows.tolist()], share.computed[edge].tolist(), share.tokens[edge].tolist(), counts
        )

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
        request = self._table.sync(row)
        tokens = self.schedule.remove(row)
        if tokens:
            self.budget += tokens
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
        taken = blocks.advance([request], [computed], [chunk], [num_new])
        self.budget -= chunk
        self.schedule.add(Share.of_row(self._table.size, computed, chunk, num_new), taken)
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
