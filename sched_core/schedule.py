"""Who computes what in the step being planned: rows in scheduling order, and the blocks handed to them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sched_core.plan import Bools, Ints

_NONE = np.empty(0, dtype=np.int64)


class Share(NamedTuple):
    """Rows of the running table that are given tokens together.

    Row ``rows[i]`` computes ``tokens[i]`` tokens from ``computed[i]`` on and gets ``num_blocks[i]`` new blocks.
    ``at_edge[i]`` is true when that reaches the end of the blocks it had: other rows neither take nor fill a block.
    """

    rows: Ints
    computed: Ints
    tokens: Ints
    num_blocks: Ints
    at_edge: Bools

    @classmethod
    def of_row(cls, row: int, computed: int, tokens: int, num_blocks: int) -> Share:
        counts = np.array([[row], [computed], [tokens], [num_blocks]])
        return cls(counts[0], counts[1], counts[2], counts[3], np.array([True]))

    def part(self, start: int, end: int) -> Share:
        return self.where(slice(start, end))

    def where(self, kept: Ints | slice) -> Share:
        rows, computed, tokens, num_blocks, at_edge = self
        return Share(rows[kept], computed[kept], tokens[kept], num_blocks[kept], at_edge[kept])


class Schedule:
    """Shares in the order in which they were given out; a row is in at most one of them."""

    __slots__ = ("_block_ids", "_shares")

    def __init__(self) -> None:
        self._shares: list[Share] = []
        self._block_ids: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._shares)

    def add(self, share: Share, block_ids: list[int]) -> None:
        """``block_ids`` are the new blocks of the share's rows, in order."""
        self._shares.append(share)
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
        if len(self._shares) == 1:
            return self._shares[0]
        shares = self._shares or [Share(_NONE, _NONE, _NONE, _NONE, _NONE > 0)]
        return Share(*map(np.concatenate, zip(*shares, strict=True)))
