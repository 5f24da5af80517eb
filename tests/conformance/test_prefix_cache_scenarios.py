"""Prefix caching: sharing, eviction order and statistics, with vLLM's figures (block ids are one less than there)."""

from __future__ import annotations

from tests.builders import blocks_of, free_order, internals, make_harness, make_request, running_ids
from twinserve.sched_core.requests.prompt import Prompt, Segment


def test_requests_share_full_blocks_and_free_them_deepest_first() -> None:
    harness = make_harness(num_blocks=10)
    harness.add(make_request(0, 48 + 7, shared=48))
    harness.step()
    pool = internals(harness.engine).pool
    assert blocks_of(harness.engine, 0) == [0, 1, 2, 3]
    assert [key is not None for key in pool.cache.keys[:4]] == [True, True, True, False]

    harness.add(make_request(1, 48 + 5, shared=48))
    assert harness.step()[1] == 5
    assert blocks_of(harness.engine, 1) == [0, 1, 2, 4]
    assert [pool.references(block) for block in range(5)] == [2, 2, 2, 1, 1]
    assert pool.num_free == 5

    harness.abort(0)
    harness.abort(1)
    assert free_order(harness.engine) == [4, 3, 5, 6, 7, 8, 9, 2, 1, 0]

    harness.add(make_request(2, 48 + 6, shared=48))
    harness.step()
    assert blocks_of(harness.engine, 2) == [0, 1, 2, 4]
    harness.abort(2)

    order = free_order(harness.engine)
    harness.add(make_request(3, 160))
    harness.step()
    assert harness.plans[-1].started[0].block_ids == tuple(order) == (4, 3, 5, 6, 7, 8, 9, 2, 1, 0)


def test_uncached_blocks_are_reused_before_cached_ones() -> None:
    harness = make_harness(num_blocks=10)
    harness.add(make_request(0, 87, shared=80), make_request(1, 48))
    harness.step()
    assert internals(harness.engine).pool.num_free == 1
    harness.abort(0)
    assert free_order(harness.engine) == [5, 9, 4, 3, 2, 1, 0]
    harness.abort(1)
    assert free_order(harness.engine) == [5, 9, 4, 3, 2, 1, 0, 8, 7, 6]
    harness.add(make_request(2, 32 + 3, shared=32))
    harness.step()
    assert harness.plans[-1].started[0].num_cached_tokens == 32
    assert blocks_of(harness.engine, 2) == [0, 1, 5]
    assert internals(harness.engine).pool.num_free == 7


def test_decoding_takes_a_block_only_when_the_last_one_is_full() -> None:
    harness = make_harness(max_num_batched_tokens=64)
    harness.add(make_request(0, 55, max_tokens=100))
    harness.step()
    cache = internals(harness.engine).pool.cache
    harness.steps(4)
    blocks = list(blocks_of(harness.engine, 0))
    assert len(blocks) == 4
    assert cache.keys[blocks[-1]] is None
    harness.steps(15)
    grown = blocks_of(harness.engine, 0)
    assert grown[:4] == blocks
    assert len(grown) == 5
    assert cache.keys[grown[-2]] is not None
    assert cache.keys[grown[-1]] is None


def test_reused_block_forgets_what_it_cached() -> None:
    harness = make_harness(num_blocks=1)
    harness.add(make_request(0, 15, max_tokens=2))
    harness.run()
    cache = internals(harness.engine).pool.cache
    assert cache.keys[0] is not None
    harness.add(make_request(1, 15))
    harness.step()
    assert blocks_of(harness.engine, 1) == [0]
    assert cache.keys[0] is None
    assert cache.as_dict() == {}


def test_without_caching_a_full_pool_admits_nothing() -> None:
    harness = make_harness(num_blocks=4, block_size=4, enable_prefix_caching=False)
    harness.add(make_request(0, 10))
    harness.step()
    assert len(blocks_of(harness.engine, 0)) == 3
    harness.abort(0)
    harness.add(make_request(1, 15, max_tokens=2), make_request(2, 4))
    assert harness.step() == {1: 15}
    assert internals(harness.engine).pool.num_free == 0
    assert harness.step() == {1: 1}
    assert harness.step() == {2: 4}


def test_salts_keep_prompts_apart() -> None:
    harness = make_harness()
    salts = ["one", "one", "two", ""]
    hits = []
    for request_id, salt in enumerate(salts):
        harness.add(make_request(request_id, 55, shared=48, cache_salt=salt))
        harness.step()
        hits.append(harness.plans[-1].started[0].num_cached_tokens)
    assert hits == [0, 48, 0, 0]


def test_extra_keys_keep_prompts_apart() -> None:
    harness = make_harness()
    hits = []
    for request_id, extra_keys in enumerate([("lora-a",), ("lora-a",), ("lora", "-a"), ()]):
        harness.add(make_request(request_id, 55, shared=48, extra_keys=extra_keys))
        harness.step()
        hits.append(harness.plans[-1].started[0].num_cached_tokens)
    assert hits == [0, 48, 0, 0]


def test_cache_is_reset_only_while_no_block_is_used() -> None:
    harness = make_harness(num_blocks=8)
    harness.add(make_request(0, 55))
    harness.step()
    assert not harness.engine.reset_prefix_cache()
    harness.abort(0)
    assert internals(harness.engine).pool.cache.as_dict()
    assert harness.engine.reset_prefix_cache()
    assert internals(harness.engine).pool.cache.as_dict() == {}
    harness.add(make_request(1, 55, prompt=make_request(0, 55).prompt))
    assert harness.step() == {1: 55}


def test_twins_in_one_step_share_what_the_first_computes() -> None:
    prompt = Prompt.of_stream(7, 100)
    harness = make_harness()
    harness.add(make_request(0, prompt=prompt), make_request(1, prompt=prompt))
    assert harness.step() == {0: 100, 1: 4}
    harness.add(make_request(2, prompt=prompt), make_request(3, prompt=prompt))
    assert harness.step() == {0: 1, 1: 1, 2: 4, 3: 4}


def test_full_hit_still_computes_the_last_block() -> None:
    """As vLLM: a hit ends at a block boundary before the last token, so 16 of 64 tokens are computed again."""
    harness = make_harness()
    prompt = Prompt.of_stream(7, 64)
    harness.add(make_request(0, prompt=prompt, max_tokens=1))
    harness.step()
    harness.add(make_request(1, prompt=prompt, max_tokens=1))
    assert harness.step() == {1: 16}


def test_next_turn_of_a_conversation_computes_only_its_incomplete_block() -> None:
    harness = make_harness(max_num_batched_tokens=8192)
    turns = range(5)
    harness.add(*(make_request(i, 100, max_tokens=200, output_stream=50 + i) for i in turns))
    harness.run()
    for i in turns:
        quoted = (Segment(1000 + i, 0, 100), Segment(50 + i, 0, 200))
        harness.add(make_request(10 + i, prompt=Prompt(quoted), max_tokens=1))
    assert harness.step() == {10 + i: 300 % 16 for i in turns}


def test_preempted_request_is_counted_apart_in_the_hit_statistics() -> None:
    harness = make_harness(num_blocks=6)
    harness.add(make_request(0, 40, max_tokens=14), make_request(1, 40, max_tokens=14))
    harness.run()
    stats = harness.engine.stats()
    assert stats["num_preemptions"] == 1
    names = ("requests", "queries", "hits", "query_blocks", "hit_blocks")
    assert [stats[f"prefix_cache_{name}"] for name in names] == [2, 40 + 40, 0, 2 + 2, 0]
    assert [stats[f"prefix_cache_preempted_{name}"] for name in names] == [1, 49, 32, 3, 2]


def test_request_that_waits_for_blocks_is_counted_once() -> None:
    harness = make_harness(num_blocks=4)
    harness.add(make_request(0, 32, shared=32, max_tokens=17))
    harness.step()
    before = harness.engine.stats()
    harness.add(make_request(1, 64, shared=32, max_tokens=1))
    harness.steps(3)
    assert running_ids(harness.engine) == [0]
    while running_ids(harness.engine) != [1] and harness.engine.has_unfinished:
        harness.step()
    after = harness.engine.stats()
    names = ("requests", "queries", "hits")
    assert [after[f"prefix_cache_{name}"] - before[f"prefix_cache_{name}"] for name in names] == [1, 64, 32]


def test_only_full_blocks_get_chained_keys() -> None:
    harness = make_harness(block_size=3)
    harness.add(
        make_request(0, prompt=Prompt.of_stream(5, 6)),
        make_request(1, prompt=Prompt.of_stream(5, 8)),
        make_request(2, prompt=Prompt((Segment(5, 3, 3),))),
    )
    keys = [internals(harness.engine).requests[i].block_keys for i in range(3)]
    assert [len(chain) for chain in keys] == [2, 2, 1]
    assert keys[0] == keys[1]
    assert keys[2][0] not in keys[0]
