"""Who computes what in the step being planned: rows in scheduling order, and the blocks handed to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sched_core.plan import Ints

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Share:
    """Rows of the running table that were given tokens together: ``[computed, computed + tokens)`` each."""

    rows: Ints
    computed: Ints
    tokens: Ints

    def without(self, position: int) -> Share:
        rows, computed, tokens = (np.delete(column, position) for column in (self.rows, self.computed, self.tokens))
        return Share(rows, computed, tokens)


class Schedule:
    """Shares in the order in which they were given out; a row is in at most one of them."""

    __slots__ = ("_shares",)

    def __init__(self) -> None:
        self._shares: list[Share] = []

    def __bool__(self) -> bool:
        return bool(self._shares)

    def add(self, share: Share) -> None:
        self._shares.append(share)

    def without(self, rows: Ints) -> Ints:
        """Those of ``rows`` that have not been scheduled."""
        for share in self._shares:
            rows = rows[~np.isin(rows, share.rows)]
        return rows

    def remove(self, row: int) -> int:
        """Take a row out again; returns the tokens it had (0 when it had none)."""
        for index, share in enumerate(self._shares):
            for position in (share.rows == row).nonzero()[0].tolist():
                self._shares[index] = share.without(position)
                return int(share.tokens[position])
        return 0

    def merged(self) -> Share:
        """Everything scheduled, as one share."""
        if len(self._shares) == 1:
            return self._shares[0]
        shares = [Share(_NONE, _NONE, _NONE), *self._shares]
        return Share(
            np.concatenate([share.rows for share in shares]),
            np.concatenate([share.computed for share in shares]),
            np.concatenate([share.tokens for share in shares]),
        )


class NewBlocks:
    """The blocks that the step hands out; rows are added in scheduling order."""

    __slots__ = ("_counts", "_ids", "_rows")

    def __init__(self) -> None:
        self._rows: list[Ints] = []
        self._counts: list[Ints] = []
        self._ids: list[int] = []

    def add(self, rows: Ints, counts: Ints, block_ids: list[int]) -> None:
        self._rows.append(rows)
        self._counts.append(counts)
        self._ids += block_ids

    def drop(self, row: int) -> None:
        """Forget a row that was preempted after all."""
        rows, counts = self._flat()
        for position in (rows == row).nonzero()[0].tolist():
            start = int(counts[:position].sum())
            del self._ids[start : start + int(counts[position])]
            self._rows, self._counts = [np.delete(rows, position)], [np.delete(counts, position)]

    def columns(self, rows: Ints) -> tuple[Ints, Ints]:
        """(blocks per row of ``rows``, all block ids in the same order)."""
        counts = np.zeros(len(rows), dtype=np.int64)
        if self._ids:
            owners, owned = self._flat()
            by_row = np.zeros(int(rows.max()) + 1, dtype=np.int64)
            by_row[owners] = owned
            counts = by_row[rows]
        return counts, np.array(self._ids, dtype=np.int64)

    def _flat(self) -> tuple[Ints, Ints]:
        if len(self._rows) == 1:
            return self._rows[0], self._counts[0]
        return np.concatenate([_NONE, *self._rows]), np.concatenate([_NONE, *self._counts])
