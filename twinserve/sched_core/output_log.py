"""Sampled ids on their way to the requests: not everything has to happen while the device waits."""

from __future__ import annotations

from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.request import Request


class OutputLog:
    """Ids that were sampled and that nobody has asked for yet.

    Handing them over touches every request of the batch, which takes a good part of the time between two steps; only
    requests that complete a block or end need theirs at once. Invariant: whoever reads ``Request.output_ids`` settles
    first, or has named the request's row urgent.
    """

    __slots__ = ("_late",)

    def __init__(self) -> None:
        self._late: list[tuple[list[Request], list[int], list[int]]] = []

    def add(self, requests: list[Request], rows: Ints, token_ids: Ints, urgent: set[int]) -> None:
        """``token_ids[i]`` was sampled for ``requests[rows[i]]``; the indices ``urgent`` of these are handed over now.

        ``requests`` may grow afterwards, but keeps the positions of what it holds.
        """
        late_rows, late_ids = rows.tolist(), token_ids.tolist()
        for index in sorted(urgent, reverse=True):
            requests[late_rows.pop(index)].output_ids.append(late_ids.pop(index))
        self._late.append((requests, late_rows, late_ids))

    def settle(self) -> None:
        """Hand over everything."""
        for requests, rows, token_ids in self._late:
            for row, token_id in zip(rows, token_ids, strict=True):
                requests[row].output_ids.append(token_id)
        self._late.clear()
