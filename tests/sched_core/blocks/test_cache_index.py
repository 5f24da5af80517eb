"""Content keys and the blocks that hold them."""

from __future__ import annotations

import random

import pytest

from twinserve.sched_core.blocks.cache_index import CacheIndex
from twinserve.sched_core.journal import Journal

A, B, C = b"a", b"b", b"c"


def make_index(num_blocks: int = 8) -> CacheIndex:
    return CacheIndex(num_blocks, Journal())


def test_longest_prefix_ends_at_the_first_unknown_key() -> None:
    index = make_index()
    index.register([4, 2], [A, C])
    assert index.longest_prefix([A, B, C]) == [4]
    assert index.longest_prefix([A, C]) == [4, 2]
    assert index.longest_prefix([]) == []


def test_oldest_of_several_blocks_is_found() -> None:
    index = make_index()
    index.register([5], [A])
    index.register([1], [A])
    index.register([3], [A])
    assert index.find(A) == 5
    assert index.as_dict() == {A: (5, 1, 3)}


def test_forgetting_one_block_keeps_the_others_of_its_key() -> None:
    index = make_index()
    for block in (5, 1, 3):
        index.register([block], [A])
    index.forget([5])
    assert index.find(A) == 1
    index.forget([3])
    assert index.as_dict() == {A: (1,)}
    index.forget([1])
    assert index.find(A) is None


def test_forgetting_an_uncached_block_changes_nothing() -> None:
    index = make_index()
    index.register([0], [A])
    index.forget([7])
    assert index.as_dict() == {A: (0,)}


def test_same_key_twice_in_one_call_keeps_both_blocks() -> None:
    index = make_index()
    index.register([0, 1], [A, A])
    assert index.as_dict() == {A: (0, 1)}


@pytest.mark.parametrize("seed", range(30))
def test_random_changes_agree_with_a_plain_map_and_roll_back(seed: int) -> None:
    draw = random.Random(seed)
    journal = Journal()
    index = CacheIndex(6, journal)
    plain: dict[bytes, list[int]] = {}

    def change(holders: dict[bytes, list[int]]) -> None:
        uncached = [block for block in range(6) if index.keys[block] is None]
        if draw.random() < 0.6 and uncached:
            blocks = draw.sample(uncached, draw.randint(1, len(uncached)))
            keys = [draw.choice([A, B, C]) for _ in blocks]
            index.register(blocks, keys)
            for block, key in zip(blocks, keys, strict=True):
                holders.setdefault(key, []).append(block)
        else:
            blocks = draw.sample(range(6), draw.randint(0, 4))
            index.forget(blocks)
            for key in list(holders):
                holders[key] = [block for block in holders[key] if block not in blocks]

    for _ in range(60):
        change(plain)
        journal.clear()
        index.compact()
        expected = {key: tuple(blocks) for key, blocks in plain.items() if blocks}
        assert index.as_dict() == expected
        assert [index.find(key) for key in (A, B, C)] == [expected.get(key, (None,))[0] for key in (A, B, C)]
        scratch = {key: list(blocks) for key, blocks in plain.items()}
        for _ in range(draw.randint(0, 3)):
            change(scratch)
        journal.rollback()
        assert index.as_dict() == expected


def test_index_does_not_grow_with_what_was_evicted() -> None:
    index = make_index(4)
    for number in range(100):
        index.register([number % 4], [b"%d" % number])
        index.forget([number % 4])
        index.compact()
        assert len(index._first) <= 4 * 4 + 1
