"""Which blocks hold which content: the prefix-cache index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sched_core.journal import Journal


class CacheIndex:
    """Content key -> blocks, and back. Several blocks may hold the same content; the oldest is found."""

    def __init__(self, num_blocks: int, journal: Journal) -> None:
        self._record = journal.record
        self.keys: list[bytes | None] = [None] * num_blocks
        self._first: dict[bytes, int] = {}
        self._others: dict[bytes, list[int]] = {}  # further blocks of a key, oldest first; never empty lists

    def find(self, key: bytes) -> int | None:
        return self._first.get(key)

    def longest_prefix(self, keys: Iterable[bytes]) -> list[int]:
        """Blocks of the first keys, up to the first one that is not cached."""
        blocks: list[int] = []
        find = self._first.get
        for key in keys:
            block = find(key)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def register(self, blocks: Sequence[int], keys: Sequence[bytes]) -> None:
        """Make each block findable under its key."""
        first, key_of = self._first, self.keys
        for block, key in zip(blocks, keys, strict=True):
            if first.setdefault(key, block) != block:
                self._others.setdefault(key, []).append(block)
            key_of[block] = key
        self._record(self._undo_register, blocks)

    def forget(self, blocks: Iterable[int]) -> None:
        """Drop the content of those blocks that are cached; another block of the same key takes its place."""
        key_of = self.keys
        cached = [(block, key) for block in blocks if (key := key_of[block]) is not None]
        if not cached:
            return
        for block, _ in cached:
            key_of[block] = None
        if self._others:
            self._record(self._undo_forget, cached, [self._drop(block, key) for block, key in cached])
            return
        first = self._first
        for _, key in cached:
            del first[key]
        self._record(self._undo_forget, cached, [0] * len(cached))

    def as_dict(self) -> dict[bytes, tuple[int, ...]]:
        """Every key with its blocks, oldest first."""
        return {key: (block, *self._others.get(key, ())) for key, block in self._first.items()}

    def _drop(self, block: int, key: bytes) -> int:
        """Remove one of a key's blocks; returns its position among them."""
        holders = [self._first[key], *self._others.pop(key, ())]
        position = holders.index(block)
        del holders[position]
        self._store(key, holders)
        return position

    def _store(self, key: bytes, holders: list[int]) -> None:
        if not holders:
            del self._first[key]
            return
        self._first[key] = holders[0]
        if len(holders) > 1:
            self._others[key] = holders[1:]

    def _undo_register(self, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):
            key = self.keys[block]
            if key is not None:
                self.keys[block] = None
                self._drop(block, key)

    def _undo_forget(self, cached: list[tuple[int, bytes]], positions: list[int]) -> None:
        for (block, key), position in zip(reversed(cached), reversed(positions), strict=True):
            self.keys[block] = key
            holders = [self._first[key], *self._others.pop(key, ())] if key in self._first else []
            holders.insert(position, block)
            self._store(key, holders)
