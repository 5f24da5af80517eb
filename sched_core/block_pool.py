"""KV blocks: reference counts, the free list in eviction order, and the index of cached blocks.

Blocks are the integers ``0 .. num_blocks - 1``. A block is *used* (reference count > 0) or *free*; a free block may
still be *cached*, that is findable by the key of its content until it is handed out again. Order of eviction, as in
vLLM: blocks freed without a key go to the front, blocks with one to the back, a request's last block before its
first: least recently used first, deepest first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from sched_core.cache_index import CacheIndex
from sched_core.journal import Journal


class BlockPool:
    """``num_blocks`` blocks; every change is recorded in ``journal``. All calls take many blocks at once.

    The free list is a deque, so that taking and returning many blocks are single operations. A prefix hit leaves the
    list from its middle: its entry stays behind and is counted in ``_stale``. Such an entry always lies before the
    block's valid one (only cached blocks are hit, and they return to the back), so the first ones met are skipped.
    """

    def __init__(self, num_blocks: int, journal: Journal) -> None:
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.cache = CacheIndex(num_blocks, journal)
        self._record = journal.record
        self._free = deque(range(num_blocks))
        self._references = [0] * num_blocks
        self._stale: dict[int, int] = {}

    def allocate(self, count: int) -> list[int]:
        """Take the ``count`` blocks to be evicted first and forget what they cached; IndexError if too few."""
        if count > self.num_free:
            raise IndexError(f"{count} KV blocks wanted, {self.num_free} free")
        references = self._references
        taken = self._take_valid(count) if self._stale else self._take(count)
        for block in taken:
            references[block] = 1
        self.num_free -= count
        self._record(self._undo_allocate, taken)
        self.cache.forget(taken)
        return taken

    def touch(self, blocks: Iterable[int]) -> None:
        """Add a reference to each block; free ones leave the free list."""
        for block in blocks:
            if self._references[block] == 0:
                self._stale[block] = self._stale.get(block, 0) + 1
                self.num_free -= 1
                self._record(self._undo_leave, block)
            self._references[block] += 1
            self._record(self._drop_reference, block)

    def release(self, blocks: Sequence[int]) -> None:
        """Drop a reference to each block, in order; the last reference returns a block to the free list."""
        references, key_of = self._references, self.cache.keys
        returned = []
        for block in blocks:
            references[block] -= 1
            if references[block] == 0:
                returned.append(block)
        cached = [block for block in returned if key_of[block] is not None]
        uncached = [block for block in returned if key_of[block] is None]
        self._free.extend(cached)
        self._free.extendleft(reversed(uncached))
        self.num_free += len(returned)
        self._record(self._undo_release, blocks, len(cached), len(uncached))

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
        stale = dict(self._stale)
        for block in self._free:
            if stale.get(block, 0):
                stale[block] -= 1
            else:
                yield block

    def _take(self, count: int) -> list[int]:
        take = self._free.popleft
        taken = [take() for _ in range(count)]
        self._record(self._free.extendleft, taken[::-1])
        return taken

    def _take_valid(self, count: int) -> list[int]:
        taken: list[int] = []
        while len(taken) < count:
            block = self._free.popleft()
            if block not in self._stale:
                taken.append(block)
                self._record(self._free.appendleft, block)
                continue
            self._record(self._undo_skip, block)
            self._stale[block] -= 1
            if self._stale[block] == 0:
                del self._stale[block]
        return taken

    def _undo_skip(self, block: int) -> None:
        self._free.appendleft(block)
        self._stale[block] = self._stale.get(block, 0) + 1

    def _undo_allocate(self, taken: list[int]) -> None:
        for block in taken:
            self._references[block] = 0
        self.num_free += len(taken)

    def _undo_leave(self, block: int) -> None:
        self.num_free += 1
        self._stale[block] -= 1
        if self._stale[block] == 0:
            del self._stale[block]

    def _drop_reference(self, block: int) -> None:
        self._references[block] -= 1

    def _undo_release(self, blocks: Sequence[int], num_cached: int, num_uncached: int) -> None:
        for _ in range(num_cached):
            self._free.pop()
        for _ in range(num_uncached):
            self._free.popleft()
        self.num_free -= num_cached + num_uncached
        for block in blocks:
            self._references[block] += 1
