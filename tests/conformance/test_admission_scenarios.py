"""Token budget, chunking, sequence cap and prefill spacing, with the figures that vLLM 0.33 gives."""

from __future__ import annotations

import pytest

from tests.builders import internals, make_harness, make_request, running_ids, tokens_of, waiting_ids


def test_all_prompts_that_fit_the_budget_start_in_order() -> None:
    harness = make_harness(max_num_batched_tokens=8192)
    harness.add(*(make_request(i, 10) for i in range(10)))
    plan = harness.begin()
    assert list(tokens_of(plan).items()) == [(i, 10) for i in range(10)]
    assert plan.num_waiting == 0


@pytest.mark.parametrize(("chunked", "expected"), [(True, {0: 800, 1: 224}), (False, {0: 800})])
def test_last_prompt_is_cut_to_the_budget_or_blocks_the_queue(chunked: bool, expected: dict[int, int]) -> None:
    harness = make_harness(max_num_batched_tokens=1024, max_num_seqs=3, enable_chunked_prefill=chunked)
    harness.add(*(make_request(i, length) for i, length in enumerate([800, 800, 10, 10])))
    assert harness.step() == expected


def test_threshold_shares_the_budget_among_long_prefills() -> None:
    harness = make_harness(max_num_batched_tokens=1024, long_prefill_token_threshold=400)
    harness.add(*(make_request(i, 800) for i in range(3)))
    assert harness.steps(3) == [{0: 400, 1: 400, 2: 224}, {0: 400, 1: 400, 2: 224}, {0: 1, 1: 1, 2: 352}]


def test_threshold_is_ignored_for_a_request_that_is_alone() -> None:
    harness = make_harness(max_num_batched_tokens=1024, long_prefill_token_threshold=400)
    harness.add(make_request(0, 2000))
    assert harness.step() == {0: 1024}


def test_threshold_applies_beside_other_requests() -> None:
    harness = make_harness(max_num_batched_tokens=1024, long_prefill_token_threshold=400)
    harness.add(make_request(0, 2000), make_request(1, 10))
    assert harness.step() == {0: 400, 1: 10}


def test_adaptive_threshold_is_at_least_a_fair_share() -> None:
    harness = make_harness(
        max_num_batched_tokens=1024, long_prefill_token_threshold=100, long_prefill_token_threshold_adaptive=True
    )
    harness.add(make_request(0, 2000), make_request(1, 10))
    assert harness.step() == {0: 512, 1: 10}


def test_sequence_cap_limits_admission() -> None:
    harness = make_harness(max_num_seqs=3)
    harness.add(*(make_request(i, 10) for i in range(10)))
    harness.step()
    assert running_ids(harness.engine) == [0, 1, 2]
    assert waiting_ids(harness.engine) == [3, 4, 5, 6, 7, 8, 9]


def test_decodes_never_wait_for_a_long_prefill() -> None:
    harness = make_harness(max_num_batched_tokens=32)
    harness.add(*(make_request(i, 4, max_tokens=100) for i in range(4)))
    harness.step()
    harness.add(make_request(4, 200))
    for _ in range(200 // 28):
        assert harness.step() == {0: 1, 1: 1, 2: 1, 3: 1, 4: 28}


def test_threshold_keeps_a_short_request_moving_beside_a_long_one() -> None:
    harness = make_harness(max_num_batched_tokens=64, long_prefill_token_threshold=16)
    harness.add(make_request(0, 200), make_request(1, 10))
    assert harness.steps(2) == [{0: 16, 1: 10}, {0: 16, 1: 1}]


def test_next_requests_start_in_the_step_after_both_places_are_free() -> None:
    harness = make_harness(max_num_seqs=2)
    harness.add(*(make_request(i, 16, max_tokens=5) for i in range(4)))
    assert [set(step) for step in harness.steps(6)] == [{0, 1}] * 5 + [{2, 3}]


def test_first_chunk_shorter_than_a_block_is_scheduled_and_continued() -> None:
    """The nano-vllm-v1 crash: a chunk of 8 tokens must not be registered as a full block of 16."""
    harness = make_harness(max_num_batched_tokens=24, block_size=16)
    harness.add(make_request(0, 16), make_request(1, 50))
    plan = harness.begin()
    partial = internals(harness.engine).requests[1].block_ids[0]
    assert internals(harness.engine).pool.cache.keys[partial] is None
    harness.finish(plan)
    assert [tokens_of(plan), *harness.steps(3)] == [{0: 16, 1: 8}, {0: 1, 1: 23}, {0: 1, 1: 19}, {0: 1, 1: 1}]


@pytest.mark.parametrize("interval", [2, 4])
def test_prefill_interval_holds_new_prefills_back_for_decode_only_steps(interval: int) -> None:
    harness = make_harness(prefill_schedule_interval=interval)
    harness.add(make_request(0, 20, max_tokens=100))
    harness.step()
    harness.add(make_request(1, 20))
    assert harness.steps(interval - 1) == [{0: 1}] * (interval - 1)
    assert harness.step() == {0: 1, 1: 20}


def test_prefill_interval_does_not_hold_back_when_nothing_decodes() -> None:
    harness = make_harness(prefill_schedule_interval=4, max_num_batched_tokens=16)
    harness.add(make_request(0, 40))
    assert harness.steps(3) == [{0: 16}, {0: 16}, {0: 8}]


def test_prefill_interval_yields_while_the_queue_could_not_be_drained() -> None:
    """A prefill step that left requests waiting for room lets the next step admit as well."""
    harness = make_harness(prefill_schedule_interval=4, max_num_batched_tokens=200)
    harness.add(make_request(0, 200, max_tokens=100), make_request(1, 190))
    assert harness.steps(2) == [{0: 200}, {0: 1, 1: 190}]


def test_prefill_interval_defers_an_unfinished_prefill_too() -> None:
    harness = make_harness(prefill_schedule_interval=2, max_num_batched_tokens=50)
    harness.add(make_request(0, 10, max_tokens=100))
    harness.steps(2)
    harness.add(make_request(1, 80))
    assert harness.steps(3) == [{0: 1, 1: 49}, {0: 1}, {0: 1, 1: 31}]


def test_prefill_interval_holds_the_last_prompt_token_of_a_cut_prompt() -> None:
    """Chunks of 6, 6 and 6 leave one token of 19: it is prefill work, and restarts the interval."""
    harness = make_harness(prefill_schedule_interval=3, long_prefill_token_threshold=6)
    harness.add(make_request(0, 1, max_tokens=100))
    harness.step()
    harness.add(make_request(1, 19, max_tokens=50))
    decode, chunk, last = {0: 1}, {0: 1, 1: 6}, {0: 1, 1: 1}
    assert harness.steps(10) == [chunk, decode, decode, chunk, decode, decode, chunk, decode, decode, last]
    harness.add(make_request(2, 20, max_tokens=50))
    assert [step.get(2, 0) for step in harness.steps(3)] == [0, 0, 6]


def test_prefill_interval_lets_a_request_with_one_token_enter_in_held_steps() -> None:
    """It neither waits nor restarts the interval; with more to compute it would wait, and so do those behind it."""
    harness = make_harness(prefill_schedule_interval=4)
    harness.add(make_request(0, 20, max_tokens=100))
    harness.step()
    harness.add(make_request(1, 1))
    assert harness.step() == {0: 1, 1: 1}
    harness.add(make_request(2, 2), make_request(3, 1))
    assert harness.step() == {0: 1, 1: 1}
    assert harness.steps(2) == [{0: 1, 1: 1}, {0: 1, 1: 1, 2: 2, 3: 1}][:2]


def test_prefill_interval_is_not_lifted_by_a_preemption() -> None:
    """Only a step that holds nothing back and preempts nobody says whether the queue could be drained."""
    harness = make_harness(prefill_schedule_interval=8, num_blocks=6)
    harness.add(make_request(0, 40, max_tokens=14), make_request(1, 40, max_tokens=14))
    harness.steps(9)
    assert harness.step() == {0: 1}
    assert harness.plans[-1].preempted == (1,)
    assert harness.engine._pacing is not None
    assert harness.engine._pacing._queue_was_drained


def test_prefill_interval_looks_at_the_queue_in_steps_without_prefill_work() -> None:
    """Request 1 does not fit beside request 0 when steps of decodes look: later it starts without waiting."""
    harness = make_harness(prefill_schedule_interval=2, num_blocks=5, enable_prefix_caching=False)
    harness.add(make_request(0, 48, max_tokens=4))
    harness.steps(2)
    harness.add(make_request(1, 70, max_tokens=1), make_request(2, 16, max_tokens=9))
    assert harness.steps(2) == [{0: 1}, {0: 1}]
    assert harness.engine._pacing is not None
    assert not harness.engine._pacing._queue_was_drained


def test_aborted_requests_leave_the_engine_one_by_one() -> None:
    harness = make_harness()
    harness.add(*(make_request(i, 10) for i in range(10)))
    harness.step()
    for i in range(10):
        harness.abort(i)
        assert running_ids(harness.engine) == list(range(i + 1, 10))
        assert i not in internals(harness.engine).requests
    assert not harness.engine.has_unfinished
