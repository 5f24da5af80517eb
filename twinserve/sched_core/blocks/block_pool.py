"""KV blocks: reference counts, the free list in eviction order, and the index of cached blocks.

Blocks are the integers ``0 .. num_blocks - 1``. A block is *used* (reference count > 0) or *free*; a free block may
still be *cached*, that is findable by the key of its content until it is handed out again. Order of eviction, as in
vLLM: blocks freed without a key go to the front, blocks with one to the back, a request's last block before its
first: least recently used first, deepest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from twinserve.sched_core.blocks.cache_index import CacheIndex
from twinserve.sched_core.journal import Journal


class BlockPool:
    """``num_blocks`` blocks; every change is recorded in ``journal``. All calls take many blocks at once.

    The free list is ``_free[_front:]``, so that taking and returning many blocks are single operations. A prefix hit
    leaves the list from its middle: its entry stays behind and is counted in ``_stale``. Such an entry always lies
    before the block's valid one (only cached blocks are hit, and they return to the back), so the first ones met are
    skipped. ``num_returned`` counts the blocks that ever came back.
    """

    def __init__(self, num_blocks: int, journal: Journal) -> None:
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self.cache = CacheIndex(num_blocks, journal)
        self._record = journal.record
        self._free = list(range(num_blocks))
        self._front = 0
        self._references = [0] * num_blocks
        self._stale: dict[int, int] = {}
        self.num_returned = 0

    def allocate(self, count: int) -> list[int]:
        """Take the ``count`` blocks to be evicted first and forget what they cached; IndexError if too few."""
        if count > self.num_free:
            raise IndexError(f"{count} KV blocks wanted, {self.num_free} free")
        if self._stale:
            taken = self._take_valid(count)
        else:
            taken = self._free[self._front : self._front + count]
            self._front += count
            self._record((self._undo_take, taken, taken, ()))
        references = self._references
        for block in taken:
            references[block] = 1
        self.num_free -= count
        self.cache.forget(taken)
        return taken

    def touch(self, blocks: Sequence[int]) -> None:
        """Add a reference to each block; free ones leave the free list."""
        for block in blocks:
            if self._references[block] == 0:
                _count(self._stale, block)
                self.num_free -= 1
            self._references[block] += 1
        self._record((self._undo_touch, blocks))

    def release(self, blocks: Sequence[int]) -> None:
        """Drop a reference to each block, in order; the last reference returns a block to the free list.

        Uncached blocks come first, as a request fills its last blocks last.
        """
        references, key_of = self._references, self.cache.keys
        freed: list[int] = []
        for block in blocks:
            references[block] = left = references[block] - 1
            if left == 0:
                freed.append(block)
        num_uncached = next((index for index, block in enumerate(freed) if key_of[block] is not None), len(freed))
        self._free += freed[num_uncached:]
        self._put_front(freed[:num_uncached])
        self.num_free += len(freed)
        self.num_returned += len(freed)
        self._record((self._undo_release, blocks, len(freed) - num_uncached, num_uncached))

    def references(self, block: int) -> int:
        return self._references[block]

    def num_free_among(self, blocks: Iterable[int]) -> int:
        """How many of ``blocks`` would leave the free list if they were used."""
        references = self._references
        return [*map(references.__getitem__, blocks)].count(0)

    def reset_cache(self) -> bool:
        """Forget all cached content; refused (False) while any block is used."""
        if self.num_free < self.num_blocks:
            return False
        self.cache.forget(range(self.num_blocks))
        return True

    def free_blocks(self) -> Iterator[int]:
        """Free blocks, next to be handed out first."""
        stale = dict(self._stale)
        for block in self._free[self._front :]:
            if block in stale:
                _uncount(stale, block)
            else:
                yield block

    def compact(self) -> None:
        """Sweep out what was left behind, once it outnumbers the blocks. Not while a step is in flight."""
        self.cache.compact()
        if self._front > self.num_blocks:
            del self._free[: self._front]
            self._front = 0
        if len(self._free) - self._front > 2 * self.num_blocks:
            self._free, self._front = list(self.free_blocks()), 0
            self._stale.clear()

    def _take_valid(self, count: int) -> list[int]:
        start = self._front
        taken: list[int] = []
        skipped: list[int] = []
        while len(taken) < count:
            block = self._free[self._front]
            self._front += 1
            if block in self._stale:
                _uncount(self._stale, block)
                skipped.append(block)
            else:
                taken.append(block)
        self._record((self._undo_take, taken, self._free[start : self._front], skipped))
        return taken

    def _put_front(self, blocks: Sequence[int]) -> None:
        start = max(self._front - len(blocks), 0)
        self._free[start : self._front] = blocks
        self._front = start

    def _undo_take(self, taken: Sequence[int], met: Sequence[int], skipped: Sequence[int]) -> None:
        """Put back the entries ``met``, of which ``skipped`` were stale."""
        self._put_front(met)
        for block in skipped:
            _count(self._stale, block)
        for block in taken:
            self._references[block] = 0
        self.num_free += len(taken)
        self.cache.retry()

    def _undo_touch(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._references[block] -= 1
            if self._references[block] == 0:
                _uncount(self._stale, block)
                self.num_free += 1
        self.cache.retry()

    def _undo_release(self, blocks: Sequence[int], num_cached: int, num_uncached: int) -> None:
        del self._free[len(self._free) - num_cached :]
        self._front += num_uncached
        self.num_free -= num_cached + num_uncached
        for block in blocks:
            self._references[block] += 1
        self.cache.retry()


def _count(counts: dict[int, int], block: int) -> None:
    counts[block] = counts.get(block, 0) + 1


def _uncount(counts: dict[int, int], block: int) -> None:
    """Take one back; blocks that count nothing are not kept."""
    if counts[block] == 1:
        del counts[block]
    else:
        counts[block] -= 1
