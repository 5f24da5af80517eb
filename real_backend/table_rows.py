"""The block tables of a step's rows in the staging buffer, changed only where they differ from the last step's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from real_backend.int_arrays import Int32s
from sched_core.plan import Ints

NOBODY = -1
"""The tenant of a row that shows filler blocks only."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableRows:
    """Which rows of a block table a step reads.

    Row ``i`` of the step is row ``owners[i]`` of ``table`` (requests, max blocks). ``tenants[i]`` changes whenever
    that row is given to another request, or to the same one anew. ``last_columns[i]`` is the column of the row's last
    block. The first ``num_decodes`` rows compute one token each, so that only their last block can be new.
    """

    table: Int32s
    owners: Ints
    tenants: Ints
    last_columns: Ints
    num_decodes: int

    @classmethod
    def of_filler(cls, num_rows: int, num_decodes: int, max_blocks: int, filler_block: int) -> TableRows:
        """Rows that read the filler page only."""
        zeros = np.zeros(num_rows, dtype=np.int64)
        table = np.full((1, max_blocks), filler_block, dtype=np.int32)
        return cls(table=table, owners=zeros, tenants=zeros + NOBODY, last_columns=zeros, num_decodes=num_decodes)


class ShownTables:
    """Keeps ``rows`` (max rows, max blocks; filler at first) equal to what a step's rows read."""

    def __init__(self, rows: Int32s, filler_block: int) -> None:
        self._rows = rows
        self._filler_block = filler_block
        self._tenants = np.full(len(rows), NOBODY, dtype=np.int64)
        self._places = np.arange(len(rows))

    def show(self, step: TableRows) -> None:
        """Copies the rows of new tenants and of prefills, and of all others the one block that may be new."""
        count = len(step.owners)
        is_stale = self._tenants[:count] != step.tenants
        is_stale[step.num_decodes :] = True
        stale = is_stale.nonzero()[0]
        if len(stale):
            self._rows[stale] = step.table[step.owners[stale]]
            self._tenants[:count] = step.tenants
        self._rows[self._places[:count], step.last_columns] = step.table[step.owners, step.last_columns]

    def hide(self, first: int, end: int) -> None:
        """Filler in the rows ``first .. end``, which pad a graph."""
        used = (self._tenants[first:end] != NOBODY).nonzero()[0] + first
        self._rows[used] = self._filler_block
        self._tenants[used] = NOBODY
