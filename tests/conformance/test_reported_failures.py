"""Failures reported for other engines, as small scenarios with the right outcome."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.builders import internals, make_harness, make_request, running_ids, waiting_ids
from twinserve.sched_core.events import FinishReason, RefusalReason
from twinserve.sched_core.requests.prompt import Prompt

BY_PRIORITY = {"order": "priority", "victim": "lowest_priority"}


def test_prompt_that_never_fits_does_not_block_the_queue() -> None:
    """vLLM 39734."""
    harness = make_harness(num_blocks=11)
    harness.add(make_request(0, 200), make_request(1, 16, max_tokens=2))
    harness.run()
    assert harness.finished == {1: FinishReason.LENGTH}


def test_light_request_passes_a_heavy_one_when_allowed() -> None:
    """vLLM 31731."""
    harness = make_harness(num_blocks=16, max_head_bypass=4)
    harness.add(make_request(0, 8 * 16 - 4))
    harness.step()
    harness.add(make_request(1, 15 * 16), make_request(2, 10))
    assert harness.step() == {0: 1, 2: 10}


def test_request_is_not_admitted_by_its_first_chunk_only_to_be_preempted() -> None:
    """vLLM 25538, 21793: B must wait until A is done, and nobody is preempted."""
    harness = make_harness(num_blocks=8, max_num_batched_tokens=32)
    harness.add(make_request(0, 60, max_tokens=60), make_request(1, 100, max_tokens=4))
    steps = harness.run()
    assert harness.engine.stats()["num_preemptions"] == 0
    first_of_b = next(i for i, step in enumerate(steps) if 1 in step)
    last_of_a = max(i for i, step in enumerate(steps) if 0 in step)
    assert first_of_b == last_of_a + 1


def test_victim_that_was_already_scheduled_leaves_the_plan() -> None:
    """vLLM 23347: its row and tokens are out of the plan (who gets the tokens: test_policy_hooks)."""
    harness = make_harness(BY_PRIORITY, num_blocks=6, max_num_batched_tokens=64)
    harness.add(make_request(0, 31, priority=9))
    harness.step()
    harness.add(make_request(1, 32, priority=0), make_request(2, 31, priority=1))
    harness.step()
    plan = harness.begin()
    assert plan.request_ids.tolist() == [1, 2]
    assert plan.preempted == (0,)
    assert plan.num_tokens == 2
    assert plan.num_running == 2
    harness.finish(plan)


def test_victim_that_was_already_scheduled_leaves_no_block_findable_that_was_never_computed() -> None:
    """The third chunk of request 0 is planned and taken back; when it resumes it must compute that chunk."""
    harness = make_harness(
        {"victim": "lowest_priority"},
        num_blocks=7,
        block_size=4,
        max_num_batched_tokens=16,
        long_prefill_token_threshold=8,
        scheduler_reserve_full_isl=False,
    )
    harness.add(make_request(0, 28, max_tokens=1, priority=9), make_request(1, 3, max_tokens=3, priority=0))
    assert harness.steps(3) == [{0: 8, 1: 3}, {0: 8, 1: 1}, {1: 1}]
    assert harness.plans[-1].preempted == (0,)
    harness.step()
    assert harness.plans[-1].started[0].num_cached_tokens == 16


def test_preempted_request_resumes_before_an_earlier_arrival_of_its_priority() -> None:
    """vLLM 41951: its place is kept, so its cached blocks are not lost to the other one."""
    harness = make_harness(BY_PRIORITY, num_blocks=4, max_num_seqs=2)
    harness.add(make_request(0, 31, priority=0, arrival_ns=0), make_request(1, 31, priority=1, arrival_ns=2))
    harness.step()
    harness.add(make_request(2, 31, priority=1, arrival_ns=1))
    harness.step()
    harness.step()
    assert running_ids(harness.engine) == [0]
    assert waiting_ids(harness.engine) == [1, 2]


def test_repeated_prompt_one_token_longer_than_its_blocks_computes_one_token() -> None:
    """vLLM 30320: 7,681 tokens at block size 64 are 120 blocks and one token; never a row of no tokens."""
    harness = make_harness(block_size=64, max_num_batched_tokens=8192, max_model_len=10_000)
    for request_id, expected in [(0, 7681), (1, 1)]:
        harness.add(make_request(request_id, prompt=Prompt.of_stream(3, 7681), max_tokens=1))
        assert harness.step() == {request_id: expected}


def test_prompt_of_whole_blocks_can_be_cut_at_a_block_boundary() -> None:
    """vLLM 7371."""
    harness = make_harness(block_size=16, max_num_batched_tokens=16)
    harness.add(make_request(0, 32, max_tokens=2))
    assert harness.run() == [{0: 16}, {0: 16}, {0: 1}]


def test_short_request_overtakes_a_long_prefill_under_a_threshold() -> None:
    """vLLM 21495: 100 tokens behind 100,000 start in the same step."""
    harness = make_harness(
        num_blocks=7000, max_model_len=200_000, max_num_batched_tokens=8192, long_prefill_token_threshold=4096
    )
    harness.add(make_request(0, 100_000), make_request(1, 100))
    assert harness.step() == {0: 4096, 1: 100}


def test_two_long_prompts_may_be_chunked_at_once() -> None:
    """SGLang 2255."""
    harness = make_harness(max_num_batched_tokens=128, long_prefill_token_threshold=64)
    harness.add(make_request(0, 300, max_tokens=1), make_request(1, 300, max_tokens=1))
    assert harness.run() == [{0: 64, 1: 64}] * 4 + [{0: 44, 1: 44}]


@pytest.mark.parametrize("policy", ["mixed", "decode_first"])
def test_endless_arrivals_do_not_delay_decodes(policy: str) -> None:
    """SGLang 32549: every step carries every decode."""
    harness = make_harness({"policy": policy}, max_num_batched_tokens=64)
    harness.add(*(make_request(i, 2, max_tokens=100) for i in range(30)))
    harness.step()
    for i in range(40):
        harness.add(make_request(100 + i, 50, max_tokens=1))
        assert dict.fromkeys(range(30), 1).items() <= harness.step().items()


def test_prefill_advances_without_prefix_caching() -> None:
    """SGLang 36855: two and a half chunks take three steps."""
    harness = make_harness(max_num_batched_tokens=16, enable_prefix_caching=False)
    harness.add(make_request(0, 40, max_tokens=1))
    assert harness.run() == [{0: 16}, {0: 16}, {0: 8}]


def test_queue_is_not_searched_when_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang 35642."""
    harness = make_harness(max_num_batched_tokens=16)
    harness.add(make_request(0, 64))
    harness.step()
    harness.add(make_request(1, 16))
    lookups: list[int] = []
    blocks = internals(harness.engine).blocks
    monkeypatch.setattr(blocks, "find_hits", lambda request: lookups.append(request.request_id) or [])
    assert harness.step() == {0: 16}
    assert lookups == []


def test_blocked_head_is_never_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """nano-vllm-v1 hashes the whole prompt of a blocked head at every step."""
    harness = make_harness(num_blocks=10)
    harness.add(make_request(0, 100, max_tokens=20), make_request(1, 100))
    hashed: list[int] = []
    blocks = internals(harness.engine).blocks
    monkeypatch.setattr(blocks, "_digest", lambda content: hashed.append(len(content)) or b"")
    harness.steps(4)
    assert hashed == []


def test_request_aborted_in_flight_emits_no_token() -> None:
    """SGLang 34112, for a request whose last chunk is running."""
    harness = make_harness(max_num_batched_tokens=16)
    harness.add(make_request(0, 32))
    harness.step()
    plan = harness.begin()
    assert plan.num_samples == 1
    harness.events.extend(harness.engine.abort(0, harness.now))
    harness.finish(plan, token_ids=[5])
    assert harness.delivered == {}
    assert harness.finished == {0: FinishReason.ABORTED}
    assert internals(harness.engine).pool.num_free == 1000


def test_request_that_ends_with_its_first_token_releases_its_place() -> None:
    """SGLang 10871, in a batch that mixes a decode with a prefill."""
    harness = make_harness(max_num_seqs=2)
    harness.add(make_request(0, 10))
    harness.step()
    harness.add(make_request(1, 10, max_tokens=1), make_request(2, 10, max_tokens=1))
    assert harness.steps(2) == [{0: 1, 1: 10}, {0: 1, 2: 10}]


def test_transient_pressure_postpones_and_only_impossibility_refuses() -> None:
    """SGLang 32700."""
    harness = make_harness(num_blocks=10)
    harness.add(make_request(0, 100, max_tokens=4))
    harness.step()
    fits_later, never_fits = harness.add(make_request(1, 100, max_tokens=1), make_request(2, 161))
    assert fits_later.accepted
    assert never_fits.refusal == RefusalReason.EXCEEDS_KV_CACHE
    harness.run()
    assert set(harness.finished) == {0, 1}
    assert harness.engine.stats()["num_preemptions"] == 0


def test_hits_are_pinned_before_new_blocks_are_taken() -> None:
    """mini-sglang 52, vLLM 33775: the free cached prefix is the oldest free block, yet not evicted by its own user."""
    harness = make_harness(num_blocks=4)
    harness.add(make_request(0, 33, shared=32, max_tokens=1), make_request(1, 16, max_tokens=1))
    harness.run()
    harness.add(make_request(2, 64, shared=32, max_tokens=1))
    plan = harness.begin()
    assert plan.started[0].num_cached_tokens == 32
    assert sorted(plan.started[0].block_ids) == [0, 1, 2, 3]
    harness.finish(plan)


def test_computed_counts_never_skip_or_repeat_within_a_stay() -> None:
    """sglang-jax 1010: chunks and preemptions must not lose positions."""
    harness = make_harness(num_blocks=9, max_num_batched_tokens=24)
    harness.add(*(make_request(i, 40, max_tokens=30) for i in range(3)))
    harness.run()
    assert harness.engine.stats()["num_preemptions"] > 0
    for request_id in range(3):
        rows = [
            (plan.num_computed[row], plan.num_new[row])
            for plan in harness.plans
            for row in (plan.request_ids == request_id).nonzero()[0]
        ]
        starts = {
            started.num_cached_tokens
            for plan in harness.plans
            for started in plan.started
            if started.spec.request_id == request_id
        }
        assert all(follows == begins + length or follows in starts for (begins, length), (follows, _) in pairwise(rows))
        assert sum(rows[-1]) == 40 + 30 - 1
