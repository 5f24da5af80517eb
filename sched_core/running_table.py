"""The requests in the batch: one row each, counters as columns, so that a step costs a few array operations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sched_core.journal import Journal
from sched_core.plan import Bools, Ints
from sched_core.request import Request

_COLUMNS = ("request_ids", "num_tokens", "num_computed", "capacity", "stop_at", "key_at", "entry_tokens", "checks_ids")


class RunningTable:
    """Rows are in order of admission; only the first ``size`` entries of each column mean anything.

    Between steps, for every row: ``num_computed < num_tokens <= stop_at`` and ``num_computed <= capacity``.
    ``num_tokens`` counts the known tokens, ``num_computed`` those whose KV is stored, ``capacity`` the tokens that
    the owned blocks hold. The request ends when ``num_tokens`` reaches ``stop_at``; its next prefix-cache key is due
    at ``key_at`` known tokens; ``entry_tokens`` is ``num_tokens`` when it entered the batch; ``checks_ids`` says
    that it has end-of-sequence or stop ids to compare with.
    """

    def __init__(self, max_rows: int, journal: Journal) -> None:
        self._record = journal.record
        self.requests: list[Request] = []
        self.request_ids = np.zeros(max_rows, dtype=np.int64)
        self.num_tokens = np.zeros(max_rows, dtype=np.int64)
        self.num_computed = np.zeros(max_rows, dtype=np.int64)
        self.capacity = np.zeros(max_rows, dtype=np.int64)
        self.stop_at = np.zeros(max_rows, dtype=np.int64)
        self.key_at = np.zeros(max_rows, dtype=np.int64)
        self.entry_tokens = np.zeros(max_rows, dtype=np.int64)
        self.checks_ids = np.zeros(max_rows, dtype=np.bool_)
        self.all_rows = np.arange(max_rows)
        self.num_checking = 0

    @property
    def size(self) -> int:
        return len(self.requests)

    def remaining(self) -> Ints:
        """Known tokens that are not computed yet, per row (>= 1)."""
        size = len(self.requests)
        return self.num_tokens[:size] - self.num_computed[:size]

    def append(self, request: Request, *, num_computed: int, capacity: int, stop_at: int, key_at: int) -> None:
        row = len(self.requests)
        self.requests.append(request)
        self.request_ids[row] = request.request_id
        self.num_tokens[row] = self.entry_tokens[row] = request.num_tokens
        self.num_computed[row] = num_computed
        self.capacity[row] = capacity
        self.stop_at[row] = stop_at
        self.key_at[row] = key_at
        checks = bool(request.ending_ids)
        self.checks_ids[row] = checks
        self.num_checking += checks
        self._record(self._pop)

    def grow(self, rows: Ints, num_slots: Ints) -> None:
        """Rows (each once) got blocks for ``num_slots`` more tokens."""
        self.capacity[rows] += num_slots
        self._record(self._shrink, rows, num_slots)

    def remove(self, gone: Bools) -> None:
        """Remove the rows marked in ``gone`` (one flag per row); the others keep their order."""
        size = len(self.requests)
        self._record(self._restorer())
        keep = (~gone).nonzero()[0]
        for name in _COLUMNS:
            column = getattr(self, name)
            column[: len(keep)] = column[:size][keep]
        self.requests = [self.requests[row] for row in keep.tolist()]
        self.num_checking = int(np.count_nonzero(self.checks_ids[: len(keep)]))

    def sync(self, row: int) -> Request:
        """Write a row's token count back to its request, which is about to leave the batch."""
        request = self.requests[row]
        before = request.num_output_tokens
        request.num_output_tokens = int(self.num_tokens[row]) - request.spec.num_prompt_tokens
        self._record(self._set_outputs, request, before)
        return request

    def _pop(self) -> None:
        self.requests.pop()
        self.num_checking -= bool(self.checks_ids[len(self.requests)])

    def _shrink(self, rows: Ints, num_slots: Ints) -> None:
        self.capacity[rows] -= num_slots

    def _restorer(self) -> Callable[[], None]:
        requests, size, num_checking = self.requests, len(self.requests), self.num_checking
        saved = {name: getattr(self, name)[:size].copy() for name in _COLUMNS}

        def restore() -> None:
            self.requests, self.num_checking = requests, num_checking
            for name, column in saved.items():
                getattr(self, name)[:size] = column

        return restore

    @staticmethod
    def _set_outputs(request: Request, num_output_tokens: int) -> None:
        request.num_output_tokens = num_output_tokens
