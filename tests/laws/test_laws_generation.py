"""Whatever the scheduler does, a request's tokens are those of an endless cache and an idle machine."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.fake_model import expected_tokens
from tests.laws.worlds import VOCAB_SIZE, Played, World, crowds, law, play, worlds
from twinserve.sched_core.events import FinishReason
from twinserve.sched_core.policies.registry import names

BUILT_IN = names()
COMBINATIONS = list(product(BUILT_IN["policy"], BUILT_IN["order"], BUILT_IN["victim"]))


def _assert_true_tokens(played: Played) -> None:
    for _, spec in played.world.arrivals:
        tokens = played.tokens.get(spec.request_id, [])
        assert tokens == expected_tokens(spec.prompt, len(tokens), VOCAB_SIZE)
        if spec.request_id in played.finished:
            assert list(played.finished[spec.request_id].output_token_ids) == tokens


@law(200)
@given(worlds())
def test_tokens_do_not_depend_on_scheduling(world: World) -> None:
    _assert_true_tokens(play(world))


@law(150)
@given(crowds())
def test_tokens_do_not_depend_on_who_is_preempted_after_being_scheduled(world: World) -> None:
    _assert_true_tokens(play(world))


@pytest.mark.parametrize(("policy", "order", "victim"), COMBINATIONS)
def test_every_policy_generates_the_same_tokens(policy: str, order: str, victim: str) -> None:
    @law(12)
    @given(worlds())
    def holds(world: World) -> None:
        _assert_true_tokens(play(replace(world, policies={"policy": policy, "order": order, "victim": victim})))

    holds()


def _completed(played: Played) -> dict[int, list[int]]:
    """Tokens of the requests that ended by a rule that does not depend on the pool."""
    ends = {FinishReason.STOP, FinishReason.LENGTH}
    return {i: played.tokens[i] for i, event in sorted(played.finished.items()) if event.reason in ends}


AMPLE = {"num_blocks": 400, "max_model_len": 60}


@law(40)
@given(worlds(misfortunes=False, fixed=AMPLE | {"max_num_batched_tokens": 40}))
def test_chunked_and_unchunked_prefills_generate_the_same_tokens(world: World) -> None:
    whole = play(replace(world, config=replace(world.config, enable_chunked_prefill=False)))
    chunked = play(replace(world, config=replace(world.config, enable_chunked_prefill=True, max_num_batched_tokens=3)))
    assert _completed(whole) == _completed(chunked)
    assert len(_completed(whole)) == len(world.arrivals)


@law(40)
@given(worlds(misfortunes=False, fixed={"block_size": 4, "num_blocks": 14, "max_model_len": 56}))
def test_preempted_and_undisturbed_requests_generate_the_same_tokens(world: World) -> None:
    chunking = replace(world.config, enable_chunked_prefill=True)
    tight = play(replace(world, config=chunking))
    ample = play(replace(world, config=replace(chunking, num_blocks=400)))
    assert _completed(tight) == _completed(ample)


@law(40)
@given(worlds(misfortunes=False, fixed={"max_model_len": 40}))
def test_prefix_caching_changes_no_token(world: World) -> None:
    cached = play(replace(world, config=replace(world.config, enable_prefix_caching=True)))
    plain = play(replace(world, config=replace(world.config, enable_prefix_caching=False)))
    assert _completed(cached) == _completed(plain)
    assert cached.refused == plain.refused


@law(30)
@given(worlds())
def test_hash_algorithm_changes_no_decision(world: World) -> None:
    logs = [
        play(replace(world, config=replace(world.config, prefix_caching_hash_algo=algorithm))).log
        for algorithm in ("xxh3_128", "sha256")
    ]
    assert logs[0] == logs[1]


@law(30)
@given(worlds())
def test_same_world_gives_the_same_bytes(world: World) -> None:
    assert play(world).log == play(world).log


@law(40)
@given(worlds(), st.lists(st.integers(0, 40), max_size=8))
def test_cancelled_steps_change_no_decision(world: World, cancels: list[int]) -> None:
    calm = replace(world, cancels=frozenset())
    assert play(calm).log == play(replace(world, cancels=frozenset(cancels))).log
