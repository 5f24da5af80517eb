"""The blocks that a step hands out, in the columnar form that its plan needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sched_core.plan import Ints


class NewBlocks:
    """Which row got how many blocks, and which ones; rows are added in scheduling order."""

    __slots__ = ("_counts", "_ids", "_rows")

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._counts: list[int] = []
        self._ids: list[int] = []

    def add(self, rows: Sequence[int], counts: Sequence[int], block_ids: Sequence[int]) -> None:
        self._rows += rows
        self._counts += counts
        self._ids += block_ids

    def drop(self, row: int) -> None:
        """Forget a row that was preempted after all."""
        if row not in self._rows:
            return
        position = self._rows.index(row)
        start = sum(self._counts[:position])
        del self._ids[start : start + self._counts[position]]
        del self._rows[position], self._counts[position]

    def columns(self, rows: Ints) -> tuple[Ints, Ints]:
        """(blocks per row of ``rows``, all block ids in the same order)."""
        counts = np.zeros(len(rows), dtype=np.int64)
        if self._rows:
            by_row = np.zeros(int(rows.max()) + 1, dtype=np.int64)
            by_row[self._rows] = self._counts
            counts = by_row[rows]
        return counts, np.array(self._ids, dtype=np.int64)
