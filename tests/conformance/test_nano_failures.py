"""Failures of nano-vllm and nano-vllm-v1, reported or by design, as small scenarios with the right outcome."""

from __future__ import annotations

import pytest

from tests.builders import blocks_of, make_harness, make_request
from twinserve.sched_core.events import FinishReason
from twinserve.sched_core.policies.interfaces import BatchState
from twinserve.sched_core.requests.prompt import Prompt


def test_reused_block_is_not_found_under_its_old_content() -> None:
    """nano-vllm 163: one block holds X, then Y; X again must be computed again."""
    harness = make_harness(num_blocks=1, block_size=4)
    for request_id, stream in enumerate([1, 2, 1]):
        harness.add(make_request(request_id, prompt=Prompt.of_stream(stream, 4), max_tokens=1))
        assert harness.step() == {request_id: 4}


def test_twins_share_blocks_in_the_step_that_computes_them() -> None:
    """nano-vllm 219."""
    harness = make_harness()
    prompt = Prompt.of_stream(3, 70)
    harness.add(make_request(0, prompt=prompt), make_request(1, prompt=prompt))
    assert harness.step() == {0: 70, 1: 6}
    assert blocks_of(harness.engine, 0)[:4] == blocks_of(harness.engine, 1)[:4]


@pytest.mark.parametrize("policy", ["mixed", "decode_first", "prefill_first", "static"])
def test_sequence_cap_holds_across_steps(policy: str) -> None:
    """nano-vllm 271: with a cap of 2 the first two requests end before the others start."""
    harness = make_harness({"policy": policy}, max_num_seqs=2)
    harness.add(*(make_request(i, 8, max_tokens=6) for i in range(4)))
    steps = harness.run()
    assert all(set(step) in ({0, 1}, {2, 3}) for step in steps)
    assert [len(step) for step in steps] == [2] * 12


def test_exhausted_pool_ends_a_request_instead_of_the_engine() -> None:
    """nano-vllm 274: two blocks of 16 and a prompt of 32."""
    harness = make_harness({"policy": "prefill_first"}, num_blocks=2)
    harness.add(make_request(0, 32, max_tokens=10), make_request(1, 8, max_tokens=3))
    harness.run()
    assert harness.finished == {0: FinishReason.KV_CAPACITY, 1: FinishReason.LENGTH}


def test_eight_prompts_with_partial_first_chunks_run_to_the_end() -> None:
    """nano-vllm-v1 at its defaults: block 256, budget 1,024, 300 tokens each."""
    harness = make_harness(block_size=256, max_num_batched_tokens=1024)
    harness.add(*(make_request(i, 300, max_tokens=4) for i in range(8)))
    harness.run()
    assert harness.num_outputs == dict.fromkeys(range(8), 4)


def test_step_may_hold_chunks_only() -> None:
    """nano-vllm-v1 fails when no row of a step needs logits."""
    harness = make_harness(max_num_batched_tokens=16)
    harness.add(make_request(0, 20))
    plan = harness.begin()
    assert plan.num_samples == 0
    harness.finish(plan, token_ids=[])
    assert harness.events == []


class Shrinking:
    """16 tokens in the first step, then 12."""

    def tokens(self, state: BatchState, now: int) -> int:
        return 12 if state.num_running else 16


@pytest.mark.parametrize(("policy", "decodes"), [("decode_first", 1), ("mixed", 0)])
def test_decodes_behind_a_long_prefill_get_their_tokens_under_decode_first(policy: str, decodes: int) -> None:
    """nano-vllm-v1: decodes after a long prefill in the batch got no tokens, as with mixed when a chunk fills it."""
    harness = make_harness({"policy": policy, "budget": Shrinking}, long_prefill_token_threshold=12)
    harness.add(make_request(0, 100), make_request(1, 4))
    assert harness.step() == {0: 12, 1: 4}
    assert [step.get(1, 0) for step in harness.steps(6)] == [decodes] * 6


def test_prefill_first_stalls_decodes_for_the_whole_prefill() -> None:
    """nano-vllm, by its nature: 200 tokens at budget 32 are 7 steps without a decode."""
    harness = make_harness({"policy": "prefill_first"}, max_num_batched_tokens=32)
    harness.add(*(make_request(i, 4, max_tokens=50) for i in range(4)))
    harness.steps(2)
    harness.add(make_request(4, 200))
    steps = harness.steps(8)
    assert [set(step) for step in steps] == [{4}] * 7 + [{0, 1, 2, 3, 4}]


def test_prefill_first_cuts_only_the_first_prompt_of_a_step() -> None:
    """nano-vllm: the second prompt waits, though 10 tokens of budget are left."""
    harness = make_harness({"policy": "prefill_first"}, max_num_batched_tokens=40)
    harness.add(make_request(0, 30), make_request(1, 30))
    assert harness.steps(2) == [{0: 30}, {1: 30}]
