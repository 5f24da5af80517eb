"""Reference counts, the free list in eviction order, and their undo."""

from __future__ import annotations

import random

import pytest

from twinserve.sched_core.blocks.block_pool import BlockPool
from twinserve.sched_core.journal import Journal


def make_pool(num_blocks: int) -> BlockPool:
    return BlockPool(num_blocks, Journal())


def free(pool: BlockPool) -> list[int]:
    return list(pool.free_blocks())


def key(number: int) -> bytes:
    return b"key %d" % number


def test_blocks_are_handed_out_in_order() -> None:
    pool = make_pool(4)
    assert pool.allocate(3) == [0, 1, 2]
    assert (free(pool), pool.num_free) == ([3], 1)


@pytest.mark.parametrize("count", [1, 2, 16])
def test_drained_pool_refills(count: int) -> None:
    pool = make_pool(count)
    blocks = pool.allocate(count)
    assert (free(pool), pool.num_free) == ([], 0)
    pool.release(blocks)
    assert sorted(free(pool)) == sorted(blocks)


def test_too_many_blocks_raise_and_change_nothing() -> None:
    pool = make_pool(2)
    with pytest.raises(IndexError, match="3 KV blocks wanted, 2 free"):
        pool.allocate(3)
    assert free(pool) == [0, 1]


def test_uncached_blocks_return_to_the_front_and_cached_ones_to_the_back() -> None:
    pool = make_pool(5)
    blocks = pool.allocate(3)
    pool.cache.register([0, 1], [key(0), key(1)])
    pool.release(blocks[::-1])
    assert free(pool) == [2, 3, 4, 1, 0]


def test_last_reference_frees_a_block() -> None:
    pool = make_pool(1)
    pool.allocate(1)
    pool.touch([0])
    pool.release([0])
    assert (pool.references(0), pool.num_free) == (1, 0)
    pool.release([0])
    assert (pool.references(0), pool.num_free) == (0, 1)


def test_hit_leaves_the_middle_of_the_free_list() -> None:
    pool = make_pool(4)
    pool.allocate(4)
    pool.cache.register([0, 1, 2, 3], [key(i) for i in range(4)])
    pool.release([0, 1, 2, 3])
    assert pool.num_free_among([1, 2]) == 2
    pool.touch([1])
    assert (free(pool), pool.num_free) == ([0, 2, 3], 3)
    assert pool.num_free_among([1, 2]) == 1
    pool.release([1])
    assert free(pool) == [0, 2, 3, 1]
    assert pool.allocate(4) == [0, 2, 3, 1]


def test_block_handed_out_again_is_no_longer_found() -> None:
    pool = make_pool(1)
    pool.release(pool.allocate(1))
    pool.allocate(1)
    pool.cache.register([0], [key(0)])
    pool.release([0])
    assert pool.cache.find(key(0)) == 0
    pool.allocate(1)
    assert pool.cache.find(key(0)) is None


def test_cache_is_reset_only_when_every_block_is_free() -> None:
    pool = make_pool(2)
    pool.allocate(1)
    pool.cache.register([0], [key(0)])
    assert not pool.reset_cache()
    pool.release([0])
    assert pool.reset_cache()
    assert pool.cache.as_dict() == {}


def test_hot_prefix_does_not_grow_the_pool() -> None:
    pool = make_pool(8)
    pool.allocate(4)
    pool.cache.register([0, 1, 2, 3], [key(i) for i in range(4)])
    pool.release([3, 2, 1, 0])
    for _ in range(100):
        pool.touch([0, 1, 2, 3])
        pool.release([3, 2, 1, 0])
        pool.compact()
        assert len(pool._free) <= 2 * pool.num_blocks + 4
    assert free(pool) == [4, 5, 6, 7, 3, 2, 1, 0]


class Model:
    """The same pool, written down plainly: a list, counts and a map."""

    def __init__(self, num_blocks: int) -> None:
        self.free = list(range(num_blocks))
        self.references = [0] * num_blocks
        self.keys: list[bytes | None] = [None] * num_blocks

    def allocate(self, count: int) -> list[int]:
        taken, self.free = self.free[:count], self.free[count:]
        for block in taken:
            self.references[block], self.keys[block] = 1, None
        return taken

    def touch(self, blocks: list[int]) -> None:
        for block in blocks:
            if block in self.free:
                self.free.remove(block)
            self.references[block] += 1

    def release(self, blocks: list[int]) -> None:
        for block in blocks:
            self.references[block] -= 1
            if self.references[block] == 0:
                self.free.insert(len(self.free) if self.keys[block] else 0, block)


def _assert_equal(pool: BlockPool, model: Model) -> None:
    assert free(pool) == model.free
    assert pool.num_free == len(model.free)
    assert [pool.references(block) for block in range(pool.num_blocks)] == model.references
    assert pool.cache.keys == model.keys


def _random_operation(draw: random.Random, pool: BlockPool, model: Model, owned: list[list[int]]) -> None:
    """Allocate, register, hit or release as a request would; ``owned`` are the block tables in use."""
    cached = [block for block, held in enumerate(model.keys) if held]
    action = draw.choice(["allocate", "allocate", "register", "touch", "release", "release"])
    if action == "allocate":
        count = draw.randint(0, len(model.free))
        blocks = pool.allocate(count)
        assert blocks == model.allocate(count)
        owned.append(blocks)
    elif action == "register" and owned:
        fresh = [block for block in draw.choice(owned) if model.keys[block] is None]
        keys = [key(draw.randint(0, 5)) for _ in fresh]
        pool.cache.register(fresh, keys)
        for block, held in zip(fresh, keys, strict=True):
            model.keys[block] = held
    elif action == "touch" and cached:
        blocks = draw.sample(cached, draw.randint(1, len(cached)))
        pool.touch(blocks)
        model.touch(blocks)
        owned.append(blocks)
    elif action == "release" and owned:
        blocks = owned.pop(draw.randrange(len(owned)))
        pool.release(blocks)
        # A request's uncached blocks go to the front as one group that keeps its order.
        model.release([block for block in blocks if model.keys[block]])
        model.release([block for block in reversed(blocks) if not model.keys[block]])


@pytest.mark.parametrize("seed", range(20))
def test_random_operations_agree_with_a_plain_model(seed: int) -> None:
    draw = random.Random(seed)
    pool, model = make_pool(9), Model(9)
    owned: list[list[int]] = []
    for _ in range(200):
        _random_operation(draw, pool, model, owned)
        if draw.random() < 0.2:
            pool.compact()
        _assert_equal(pool, model)


@pytest.mark.parametrize("seed", range(20))
def test_rollback_restores_the_pool(seed: int) -> None:
    draw = random.Random(seed)
    journal = Journal()
    pool, model = BlockPool(9, journal), Model(9)
    owned: list[list[int]] = []
    for _ in range(30):
        for _ in range(5):
            _random_operation(draw, pool, model, owned)
        journal.clear()
        before = (
            free(pool),
            pool.num_free,
            [pool.references(block) for block in range(pool.num_blocks)],
            list(pool.cache.keys),
            pool.cache.as_dict(),
        )
        copy, tables = Model(9), [list(blocks) for blocks in owned]
        copy.free, copy.references, copy.keys = list(model.free), list(model.references), list(model.keys)
        for _ in range(5):
            _random_operation(draw, pool, copy, tables)
        journal.rollback()
        after = (
            free(pool),
            pool.num_free,
            [pool.references(block) for block in range(pool.num_blocks)],
            list(pool.cache.keys),
            pool.cache.as_dict(),
        )
        assert before == after
