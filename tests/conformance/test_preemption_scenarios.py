"""Block shortage: preemption, resumption, watermark and what never fits, with vLLM 0.33's figures."""

from __future__ import annotations

import pytest

from tests.builders import Harness, internals, make_harness, make_request, running_ids, waiting_ids
from twinserve.sched_core.events import FinishReason, RefusalReason

BY_PRIORITY = {"order": "priority", "victim": "lowest_priority"}


def test_higher_priority_takes_the_blocks_of_a_lower_one() -> None:
    harness = make_harness(BY_PRIORITY, num_blocks=5, max_num_batched_tokens=64)
    harness.add(make_request(0, 32, priority=5))
    harness.step()
    harness.add(make_request(1, 32, priority=0))
    assert harness.step() == {0: 1, 1: 32}
    assert internals(harness.engine).pool.num_free == 0
    plan = harness.begin()
    assert (plan.request_ids.tolist(), plan.preempted) == ([1], (0,))
    harness.finish(plan)
    assert waiting_ids(harness.engine) == [0]


def test_preempted_request_recomputes_prompt_and_outputs_when_it_resumes() -> None:
    harness = make_harness(BY_PRIORITY, num_blocks=4, enable_prefix_caching=False)
    harness.add(make_request(0, 30, priority=5))
    harness.step()
    harness.add(make_request(1, 32, max_tokens=3, priority=0))
    harness.step()
    assert internals(harness.engine).pool.num_free == 0
    assert harness.step() == {1: 1}
    assert harness.steps(2) == [{1: 1}, {0: 32}]
    assert harness.plans[-1].started[0].resumed


@pytest.mark.parametrize(("caching", "recomputed"), [(True, 17), (False, 49)])
def test_resumed_request_finds_its_blocks_in_the_prefix_cache(caching: bool, recomputed: int) -> None:
    """With caching 32 of 49 tokens hit; the last block had been evicted by the other request."""
    harness = make_harness(num_blocks=6, enable_prefix_caching=caching)
    harness.add(make_request(0, 40, max_tokens=14), make_request(1, 40, max_tokens=14))
    steps = harness.steps(15)
    assert steps[8] == {0: 1, 1: 1}
    assert steps[9] == {0: 1}
    assert harness.plans[9].preempted == (1,)
    assert steps[14] == {1: recomputed}


def _heavy_head_and_light_follower(max_head_bypass: int) -> Harness:
    harness = make_harness(num_blocks=29, max_head_bypass=max_head_bypass)
    harness.add(make_request(0, 21 * 16 - 8, max_tokens=8))
    harness.step()
    harness.add(make_request(1, 15 * 16), make_request(2, 15))
    return harness


def test_strict_order_lets_a_heavy_head_block_light_requests() -> None:
    harness = _heavy_head_and_light_follower(max_head_bypass=0)
    assert harness.step() == {0: 1}


def test_bounded_bypass_admits_a_light_request_past_a_heavy_head() -> None:
    """Unlike vLLM, by choice: N later requests may pass a blocked head, over its whole wait."""
    harness = _heavy_head_and_light_follower(max_head_bypass=1)
    assert harness.step() == {0: 1, 2: 15}
    harness.add(make_request(3, 15))
    assert harness.step() == {0: 1, 2: 1}
    assert waiting_ids(harness.engine) == [1, 3]


def test_request_that_can_never_fit_is_refused_and_others_run() -> None:
    """Unlike vLLM (issue 39734), where it waits for ever and blocks all that come after it."""
    harness = make_harness(num_blocks=11)
    big, small = harness.add(make_request(0, 200), make_request(1, 16))
    assert (big.refusal, small.refusal) == (RefusalReason.EXCEEDS_KV_CACHE, None)
    assert "200" in big.detail
    assert harness.step() == {1: 16}


def test_request_that_outgrows_the_pool_ends_with_a_reason() -> None:
    """Unlike vLLM, where it is preempted and waits for ever."""
    harness = make_harness(num_blocks=2)
    harness.add(make_request(0, 32))
    harness.run()
    assert harness.finished == {0: FinishReason.KV_CAPACITY}
    assert harness.num_outputs == {0: 1}


def test_request_decodes_to_the_last_slot_of_the_pool() -> None:
    harness = make_harness(num_blocks=2)
    harness.add(make_request(0, 20, max_tokens=100))
    assert len(harness.run()) == 13
    assert harness.num_outputs == {0: 13}


@pytest.mark.parametrize(
    ("watermark", "admitted"), [(0.0, [0, 1]), (0.1, [0, 1]), (0.19, [0, 1]), (0.191, [0]), (0.3, [0])]
)
def test_watermark_keeps_blocks_free_while_something_runs(watermark: float, admitted: list[int]) -> None:
    harness = make_harness(num_blocks=20, watermark=watermark)
    harness.add(make_request(0, 160), make_request(1, 100))
    harness.step()
    assert running_ids(harness.engine) == admitted


def test_watermark_counts_one_block_more_than_there_are() -> None:
    """vLLM's null block: 0.3 of 6 + 1 blocks are 2."""
    harness = make_harness(num_blocks=6, block_size=1, watermark=0.3)
    harness.add(make_request(0, 3), make_request(1, 2))
    assert harness.step() == {0: 3}


def test_watermark_does_not_hold_back_the_first_request() -> None:
    harness = make_harness(num_blocks=20, watermark=0.9)
    harness.add(make_request(0, 160))
    assert harness.step() == {0: 160}


def test_first_chunk_alone_does_not_admit_a_prompt_that_does_not_fit_now() -> None:
    harness = make_harness(num_blocks=10, max_num_batched_tokens=16)
    harness.add(make_request(0, 16, max_tokens=60))
    harness.step()
    harness.add(make_request(1, 150))
    assert harness.step() == {0: 1}


def test_without_reservation_the_first_chunk_is_enough() -> None:
    harness = make_harness(num_blocks=10, max_num_batched_tokens=17, scheduler_reserve_full_isl=False)
    harness.add(make_request(0, 16, max_tokens=60))
    harness.step()
    harness.add(make_request(1, 150))
    assert harness.step() == {0: 1, 1: 16}


def test_oversized_prompt_is_refused_on_arrival() -> None:
    harness = make_harness(num_blocks=4)
    assert harness.add(make_request(0, 16 * 16))[0].refusal == RefusalReason.EXCEEDS_KV_CACHE
