"""The requests in the batch: one row each, counters as columns, so that a step costs a few array operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twinserve.sched_core.journal import Journal
from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.request import Request


class RunningTable:
    """Rows are in order of admission; only the first ``size`` entries of each column mean anything.

    Between steps, for every row: ``num_computed < num_tokens <= stop_at`` and ``num_computed <= capacity``.
    ``num_tokens`` counts the known tokens, ``num_computed`` those whose KV is stored, ``capacity`` the tokens that
    the owned blocks hold. The request ends when ``num_tokens`` reaches ``stop_at``; its next prefix-cache key is due
    at ``key_at`` known tokens; ``check_at`` is the smaller of the two; ``entry_tokens`` is ``num_tokens`` when it
    entered the batch; ``checks_ids`` is 1 when it has end-of-sequence or stop ids to compare with, ``num_checking``
    counts those rows.
    """

    def __init__(self, max_rows: int, block_size: int, journal: Journal) -> None:
        self.block_size: Ints = np.array(block_size)  # of no dimensions, as ``plan.ONE``
        self._record = journal.record
        self._columns = np.zeros((8, max_rows), dtype=np.int64)  # one array, so that removing a row is one shift
        (
            self.request_ids,
            self.num_tokens,
            self.num_computed,
            self.capacity,
            self.stop_at,
            self.check_at,
            self.entry_tokens,
            self.checks_ids,
        ) = self._columns
        self.requests: list[Request] = []
        self.all_rows = np.arange(max_rows)
        self.num_checking = 0

    @property
    def size(self) -> int:
        return len(self.requests)

    def remaining(self) -> Ints:
        """Known tokens that are not computed yet, per row (>= 1)."""
        size = len(self.requests)
        return self.num_tokens[:size] - self.num_computed[:size]

    def decoding(self) -> Ints:
        """Rows that have sampled since they entered the batch; each has one token to compute."""
        size = len(self.requests)
        rows: Ints = (self.num_tokens[:size] > self.entry_tokens[:size]).nonzero()[0]
        return rows

    def append(self, request: Request, *, num_computed: int, capacity: int, stop_at: int, key_at: int) -> None:
        num_tokens, checks_ids = request.num_tokens, bool(request.ending_ids)
        self._columns[:, len(self.requests)] = (
            request.request_id,
            num_tokens,
            num_computed,
            capacity,
            stop_at,
            min(stop_at, key_at),
            num_tokens,
            checks_ids,
        )
        self.requests.append(request)
        self.num_checking += checks_ids
        self._record((self._pop,))

    def grow(self, rows: Ints, num_blocks: Ints) -> None:
        """Rows (each once) got so many more blocks."""
        before = self.capacity[rows]
        self.capacity[rows] = before + num_blocks * self.block_size
        self._record((self._set_capacity, rows, before))

    def remove(self, rows: Sequence[int]) -> None:
        """Remove rows (in any order, each once); the others keep theirs and close up."""
        size = len(self.requests)
        self._record((self._restore, self.requests, self._columns[:, :size].copy(), self.num_checking))
        self.requests = [*self.requests]
        for row in sorted(rows, reverse=True):
            del self.requests[row]
            self._columns[:, row : size - 1] = self._columns[:, row + 1 : size]
            size -= 1
        if self.num_checking:
            self.num_checking = int(self.checks_ids[:size].sum())

    def sync(self, row: int) -> Request:
        """Write a row's token count back to its request, which is about to leave the batch."""
        request = self.requests[row]
        before = request.num_output_tokens
        request.num_output_tokens = self.num_tokens.item(row) - request.num_prompt_tokens
        self._record((self._set_outputs, request, before))
        return request

    def _pop(self) -> None:
        self.requests.pop()
        self.num_checking -= int(self.checks_ids[len(self.requests)])

    def _set_capacity(self, rows: Ints, capacity: Ints) -> None:
        self.capacity[rows] = capacity

    def _restore(self, requests: list[Request], columns: Ints, num_checking: int) -> None:
        self.requests, self.num_checking = requests, num_checking
        self._columns[:, : len(requests)] = columns

    @staticmethod
    def _set_outputs(request: Request, num_output_tokens: int) -> None:
        request.num_output_tokens = num_output_tokens
