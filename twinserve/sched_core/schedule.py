"""Who computes what in the step being planned: rows in scheduling order, and the blocks handed to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twinserve.sched_core.plan import Ints


class Share(NamedTuple):
    """Rows of the running table that are given tokens together.

    Row ``rows[i]`` computes ``tokens[i]`` tokens, those from ``computed[i]`` up to ``ends[i]``, and gets
    ``num_blocks[i]`` new blocks.
    """

    rows: Ints
    computed: Ints
    tokens: Ints
    ends: Ints
    num_blocks: Ints

    def where(self, kept: Ints) -> Share:
        rows, computed, tokens, ends, num_blocks = self
        return Share(rows[kept], computed[kept], tokens[kept], ends[kept], num_blocks[kept])


class Schedule:
    """Shares in the order in which they were given out, then single rows; a row is in at most one of them."""

    __slots__ = ("_block_ids", "_shares", "_single_rows")

    def __init__(self) -> None:
        self._shares: list[Share] = []
        self._single_rows: list[tuple[int, int, int, int, int]] = []  # each with the fields of a share
        self._block_ids: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._shares or self._single_rows)

    def add(self, share: Share, block_ids: list[int]) -> None:
        """``block_ids`` are the new blocks of the share's rows, in order."""
        self._shares.append(share)
        self._block_ids += block_ids

    def add_row(self, row: int, computed: int, tokens: int, block_ids: list[int]) -> None:
        """A row that enters the batch, after all shares; it stays."""
        self._single_rows.append((row, computed, tokens, computed + tokens, len(block_ids)))
        self._block_ids += block_ids

    def without(self, rows: Ints) -> Ints:
        """Those of ``rows`` that have not been scheduled."""
        for share in self._shares:
            rows = rows[~np.isin(rows, share.rows)]
        return rows

    def remove(self, row: int) -> int:
        """Take a row out again; returns the tokens it had (0 when it had none)."""
        first_block = 0
        for index, share in enumerate(self._shares):
            for position in (share.rows == row).nonzero()[0].tolist():
                first_block += int(share.num_blocks[:position].sum())
                del self._block_ids[first_block : first_block + int(share.num_blocks[position])]
                rest = share.where((share.rows != row).nonzero()[0])
                self._shares[index : index + 1] = [rest] if len(rest.rows) else []
                return int(share.tokens[position])
            first_block += int(share.num_blocks.sum())
        return 0

    def block_ids(self) -> Ints:
        """All new blocks, in scheduling order."""
        return np.array(self._block_ids, dtype=np.int64)

    def merged(self) -> Share:
        """Everything scheduled, as one share."""
        if len(self._shares) == 1 and not self._single_rows:
            return self._shares[0]
        single_rows = np.array(self._single_rows, dtype=np.int64).reshape(-1, len(Share._fields))
        return Share(*np.concatenate([*self._shares, single_rows.T], axis=1))
