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

    def part(self, kept: slice | Ints) -> RowGroup:
        """The rows at the positions ``kept``."""
        tokens = self.tokens[kept]
        return RowGroup(self.rows[kept], self.computed[kept], tokens, self.ends[kept], int(tokens.sum()))


class ScheduledRows:
    """Groups of rows in the order in which they were given tokens, then rows that enter the batch.

    A row is scheduled at most once. ``num_tokens`` have been scheduled, ``budget`` tokens are left; every change to
    either is here.
    """

    __slots__ = ("_block_ids", "_entering", "_groups", "_num_blocks", "budget", "num_tokens")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.num_tokens = 0
        self._groups: list[RowGroup] = []
        self._num_blocks: list[Ints] = []  # of the rows of each group
        self._entering: list[tuple[int, int, int, int, int]] = []  # row, computed, tokens, end, new blocks
        self._block_ids: list[int] = []

    def add(self, group: RowGroup, num_blocks: Ints, block_ids: list[int]) -> None:
        """``block_ids`` are the new blocks of the group's rows in order, ``num_blocks[i]`` of them for row ``i``."""
        self._groups.append(group)
        self._num_blocks.append(num_blocks)
        self._block_ids += block_ids
        self.num_tokens += group.num_tokens
        self.budget -= group.num_tokens

    def add_entering(self, row: int, computed: int, tokens: int, block_ids: list[int]) -> None:
        """A row that enters the batch, after all groups; it stays."""
        self._entering.append((row, computed, tokens, computed + tokens, len(block_ids)))
        self._block_ids += block_ids
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
        for index, (group, num_blocks) in enumerate(zip(self._groups, self._num_blocks, strict=True)):
            for position in (group.rows == row).nonzero()[0].tolist():
                first_block += int(num_blocks[:position].sum())
                del self._block_ids[first_block : first_block + int(num_blocks[position])]
                self._take_out(index, (group.rows != row).nonzero()[0])
                tokens = int(group.tokens[position])
                self.num_tokens -= tokens
                self.budget += tokens
                return tokens
            first_block += int(num_blocks.sum())
        return 0

    def _take_out(self, index: int, kept: Ints) -> None:
        rest, num_blocks = self._groups[index].part(kept), self._num_blocks[index][kept]
        self._groups[index : index + 1] = [rest] if len(kept) else []
        self._num_blocks[index : index + 1] = [num_blocks] if len(kept) else []

    def block_ids(self) -> Ints:
        """All new blocks, in scheduling order."""
        return np.array(self._block_ids, dtype=np.int64)

    def merged(self) -> tuple[RowGroup, Ints]:
        """Everything scheduled, in order, and the number of new blocks of each row."""
        if len(self._groups) == 1 and not self._entering:
            return self._groups[0], self._num_blocks[0]
        entering = np.array(self._entering, dtype=np.int64).reshape(-1, 5)
        columns = [(*group[:-1], num) for group, num in zip(self._groups, self._num_blocks, strict=True)]
        rows, computed, tokens, ends, num_blocks = np.concatenate([*columns, entering.T], axis=1)
        return RowGroup(rows, computed, tokens, ends, self.num_tokens), num_blocks
