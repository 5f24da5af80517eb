"""KV blocks: reference counts, the free list in eviction order, and the index of cached blocks.

Blocks are the integers ``0 .. num_blocks - 1``. A block is *used* (reference count > 0) or *free*; a free block may
still be *cached*, that is findable by the key of its content until it is handed out again. The free list is a doubly
linked list over plain integer lists, so that a prefix hit leaves its middle in O(1). Order of eviction, as in vLLM:
blocks freed without a key go to the front, blocks with one to the back, a request's last block before its first:
least recently used first, deepest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sched_core.cache_index import CacheIndex
from sched_core.journal import Journal


class BlockPool:
    """``num_blocks`` blocks; every change is recorded in ``journal``. All calls take many blocks at once."""

    def __init__(self, num_blocks: int, journal: Journal) -> None:
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.cache = CacheIndex(num_blocks, journal)
        self._record = journal.record
        # Entry num_blocks is the sentinel: its next is the first free block, its previous the last.
        self._next = [*range(1, num_blocks + 1), 0]
        self._prev = [num_blocks, *range(num_blocks)]
        self._references = [0] * num_blocks

    def allocate(self, count: int) -> list[int]:
        """Take the ``count`` blocks to be evicted first and forget what they cached; IndexError if too few are free."""
        if count > self.num_free:
            raise IndexError(f"{count} KV blocks wanted, {self.num_free} free")
        following, references, end = self._next, self._references, self.num_blocks
        taken = []
        block = following[end]
        for _ in range(count):
            taken.append(block)
            references[block] = 1
            block = following[block]
        following[end] = block
        self._prev[block] = end
        self.num_free -= count
        self._record(self._undo_allocate, taken)
        self.cache.forget(taken)
        return taken

    def touch(self, blocks: Iterable[int]) -> None:
        """Add a reference to each block; free ones leave the free list."""
        for block in blocks:
            if self._references[block] == 0:
                before = self._prev[block]
                self._unlink(block)
                self._record(self._link_after, before, block)
            self._references[block] += 1
            self._record(self._add_references, block, -1)

    def release(self, blocks: Sequence[int]) -> None:
        """Drop a reference to each block, in order; the last reference returns a block to the free list."""
        references, key_of, end = self._references, self.cache.keys, self.num_blocks
        returned = []
        for block in blocks:
            references[block] -= 1
            if references[block] == 0:
                self._link_after(self._prev[end] if key_of[block] is not None else end, block)
                returned.append(block)
        self._record(self._undo_release, blocks, returned)

    def references(self, block: int) -> int:
        return self._references[block]

    def num_free_among(self, blocks: Iterable[int]) -> int:
        """How many of ``blocks`` would leave the free list if they were used."""
        references = self._references
        return sum(1 for block in blocks if references[block] == 0)

    def reset_cache(self) -> bool:
        """Forget all cached content; refused (False) while any block is used."""
        if self.num_free < self.num_blocks:
            return False
        self.cache.forget(range(self.num_blocks))
        return True

    def free_blocks(self) -> Iterator[int]:
        """Free blocks, next to be handed out first."""
        block = self._next[self.num_blocks]
        while block != self.num_blocks:
            yield block
            block = self._next[block]

    def _unlink(self, block: int) -> None:
        before, after = self._prev[block], self._next[block]
        self._next[before] = after
        self._prev[after] = before
        self.num_free -= 1

    def _link_after(self, before: int, block: int) -> None:
        after = self._next[before]
        self._prev[block], self._next[block] = before, after
        self._next[before] = self._prev[after] = block
        self.num_free += 1

    def _add_references(self, block: int, count: int) -> None:
        self._references[block] += count

    def _undo_allocate(self, taken: list[int]) -> None:
        for block in reversed(taken):
            self._references[block] = 0
            self._link_after(self.num_blocks, block)

    def _undo_release(self, blocks: Sequence[int], returned: list[int]) -> None:
        for block in reversed(returned):
            self._unlink(block)
        for block in blocks:
            self._references[block] += 1
