"""Which blocks hold which content: the prefix-cache index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from twinserve.sched_core.journal import Journal


class CacheIndex:
    """Content key -> blocks, and back. Several blocks may hold the same content; the oldest is found.

    ``keys[block]`` is the truth. Entries of the index are not removed when a block is handed out again, only
    recognised: an entry counts while its block still has that key. ``compact`` sweeps the others out.
    ``num_retries`` counts how often those that wait for one of the keys ``awaited`` had to look again: one of them was
    registered, or a step was cancelled. Then none is awaited any more.
    """

    def __init__(self, num_blocks: int, journal: Journal) -> None:
        self._record = journal.record
        self.keys: list[bytes | None] = [None] * num_blocks
        self._first: dict[bytes, int] = {}
        self._others: dict[bytes, list[int]] = {}  # further blocks of a key, oldest first
        self.awaited: set[bytes] = set()
        self.num_retries = 0

    def find(self, key: bytes) -> int | None:
        """The oldest block that holds ``key``'s content."""
        block = self._first.get(key)
        if block is None or self.keys[block] == key:
            return block
        return next((other for other in self._others.get(key, ()) if self.keys[other] == key), None)

    def longest_prefix(self, keys: Iterable[bytes]) -> list[int]:
        """Blocks of the first keys, up to the first one that is not cached."""
        blocks: list[int] = []
        for key in keys:
            block = self.find(key)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def register(self, blocks: Sequence[int], keys: Sequence[bytes]) -> None:
        """Make each block findable under its key."""
        key_of, others, set_first = self.keys, self._others, self._first.setdefault
        is_new = [*map(set_first, keys, blocks)] == blocks and not others
        for block, key in zip(blocks, keys, strict=True):
            if not is_new and (self._first[key] != block or key in others):
                self._add_holder(block, key)
            key_of[block] = key
        if self.awaited and not self.awaited.isdisjoint(keys):
            self.retry()
        self._record((self._set_keys, blocks, repeat(None)))

    def forget(self, blocks: Sequence[int]) -> None:
        """Drop the content of those blocks that are cached."""
        key_of = self.keys
        self._record((self._set_keys, blocks, [key_of[block] for block in blocks]))
        for block in blocks:
            key_of[block] = None

    def retry(self) -> None:
        self.awaited.clear()
        self.num_retries += 1

    def compact(self) -> None:
        """Sweep out entries that no longer count, once they are most of the index. Not while a step is in flight."""
        if len(self._first) <= 4 * len(self.keys):
            return
        several = {key: self._holders(key) for key in self._others}
        self._first = {key: block for block, key in enumerate(self.keys) if key is not None}
        self._first |= {key: blocks[0] for key, blocks in several.items() if blocks}
        self._others = {key: blocks[1:] for key, blocks in several.items() if len(blocks) > 1}

    def as_dict(self) -> dict[bytes, tuple[int, ...]]:
        """Every cached key with its blocks, oldest first."""
        holders = {key: tuple(self._holders(key)) for key in self._first}
        return {key: blocks for key, blocks in holders.items() if blocks}

    def _holders(self, key: bytes) -> list[int]:
        if key not in self._first:
            return []
        return [block for block in (self._first[key], *self._others.get(key, ())) if self.keys[block] == key]

    def _add_holder(self, block: int, key: bytes) -> None:
        """Append ``block`` to the holders of a key that the index knew, valid or not."""
        self._record((self._store, key, self._first[key], self._others.get(key, [])))
        holders = [*self._holders(key), block]
        self._store(key, holders[0], holders[1:])

    def _set_keys(self, blocks: Iterable[int], keys: Iterable[bytes | None]) -> None:
        for block, key in zip(blocks, keys, strict=False):
            self.keys[block] = key

    def _store(self, key: bytes, first: int, others: list[int]) -> None:
        self._first[key] = first
        if others:
            self._others[key] = others
        else:
            self._others.pop(key, None)
