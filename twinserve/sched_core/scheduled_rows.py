"""What has been scheduled in the step being planned: rows in order, their tokens and blocks, and the budget left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twinserve.sched_core.plan import Ints


class RowGroup(NamedTuple):
    """Rows of the running table that are given tokens together.

    Row ``rows[i]`` computes ``tokens[i]`` tokens, those from ``computed[i]`` up to ``ends[i]``; ``num_tokens`` is
    their sum.
    """

    rows: Ints
    computed: Ints
    tokens: Ints
    ends: Ints
    num_tokens: int

    def part(self, first: int, stop: int) -> RowGroup:
        """The rows at positions ``[first, stop)``."""
        tokens = self.tokens[first:stop]
        return RowGroup(
            self.rows[first:stop], self.computed[first:stop], tokens, self.ends[first:stop], int(tokens.sum())
        )


class Columns(NamedTuple):
    """Everything scheduled, one entry per row; ``num_blocks`` counts the new blocks of each."""

    rows: Ints
    computed: Ints
    tokens: Ints
    ends: Ints
    num_blocks: Ints

    def where(self, kept: Ints) -> Columns:
        rows, computed, tokens, ends, num_blocks = self
        return Columns(rows[kept], computed[kept], tokens[kept], ends[kept], num_blocks[kept])


class ScheduledRows:
    """Groups of rows in the order in which they were given tokens, then rows that enter the batch.

    A row is scheduled at most once. ``num_tokens`` have been scheduled, ``budget`` tokens are left; every change to
    either is here.
    """

    __slots__ = ("_block_ids", "_entering", "_groups", "budget", "num_tokens")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.num_tokens = 0
        self._groups: list[Columns] = []
        self._entering: list[tuple[int, int, int, int, int]] = []  # each with the fields of ``Columns``
        self._block_ids: list[int] = []

    def add(self, group: RowGroup, num_blocks: Ints, block_ids: list[int]) -> None:
        """``block_ids`` are the new blocks of the group's rows in order, ``num_blocks[i]`` of them for row ``i``."""
        self._groups.append(Columns(group.rows, group.computed, group.tokens, group.ends, num_blocks))
        self._block_ids += block_ids
        self._spend(group.num_tokens)

    def add_entering(self, row: int, computed: int, tokens: int, block_ids: list[int]) -> None:
        """A row that enters the batch, after all groups; it stays."""
        self._entering.append((row, computed, tokens, computed + tokens, len(block_ids)))
        self._block_ids += block_ids
        self._spend(tokens)

    def _spend(self, tokens: int) -> None:
        self.num_tokens += tokens
        self.budget -= tokens

    def without(self, rows: Ints) -> Ints:
        """Those of ``rows`` that have not been scheduled."""
        for group in self._groups:
            rows = rows[~np.isin(rows, group.rows)]
        return rows

    def remove(self, row: int) -> int:
        """Take a row out again; its tokens are back in the budget. Returns how many it had (0: not scheduled)."""
        first_block = 0
        for index, group in enumerate(self._groups):
            for position in (group.rows == row).nonzero()[0].tolist():
                first_block += int(group.num_blocks[:position].sum())
                del self._block_ids[first_block : first_block + int(group.num_blocks[position])]
                rest = group.where((group.rows != row).nonzero()[0])
                self._groups[index : index + 1] = [rest] if len(rest.rows) else []
                tokens = int(group.tokens[position])
                self._spend(-tokens)
                return tokens
            first_block += int(group.num_blocks.sum())
        return 0

    def block_ids(self) -> Ints:
        """All new blocks, in scheduling order."""
        return np.array(self._block_ids, dtype=np.int64)

    def merged(self) -> Columns:
        """Everything scheduled, in order."""
        if len(self._groups) == 1 and not self._entering:
            return self._groups[0]
        entering = np.array(self._entering, dtype=np.int64).reshape(-1, len(Columns._fields))
        return Columns(*np.concatenate([*self._groups, entering.T], axis=1))
