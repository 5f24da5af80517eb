"""Nothing is lost, nothing is made up, nothing happens before its cause, and everything ends."""

from __future__ import annotations

from collections import Counter

from hypothesis import given

from tests.laws.worlds import Played, World, law, play, worlds
from twinserve.sched_core.events import FinishReason


def _aborted(played: Played) -> set[int]:
    return {i for i, event in played.finished.items() if event.reason is FinishReason.ABORTED}


@law(150)
@given(worlds())
def test_every_request_is_refused_or_ends_exactly_once(world: World) -> None:
    played = play(world)
    ids = {spec.request_id for _, spec in world.arrivals}
    assert played.refused | set(played.finished) == ids
    assert not played.refused & set(played.finished)
    assert not played.engine.has_unfinished


@law(100)
@given(worlds())
def test_requests_end_for_the_reason_that_their_length_shows(world: World) -> None:
    played = play(world)
    config = world.config
    for _, spec in world.arrivals:
        event = played.finished.get(spec.request_id)
        if event is None:
            continue
        limit = min(spec.max_tokens, config.max_model_len - spec.num_prompt_tokens)
        capacity = config.num_blocks * config.block_size + 1 - spec.num_prompt_tokens
        assert event.num_output_tokens == len(played.tokens.get(spec.request_id, []))
        assert event.num_output_tokens <= min(limit, capacity)
        if event.reason is FinishReason.LENGTH:
            assert event.num_output_tokens == limit
        if event.reason is FinishReason.KV_CAPACITY:
            assert event.num_output_tokens == capacity < limit


@law(100)
@given(worlds())
def test_all_blocks_are_free_at_the_end(world: World) -> None:
    pool = play(world).engine._state.pool
    assert sorted(pool.free_blocks()) == list(range(world.config.num_blocks))


@law(100)
@given(worlds())
def test_tokens_are_computed_once_per_stay_in_the_batch(world: World) -> None:
    """Each stay starts at its prefix hit and computes every further position once, in order."""
    played = play(world)
    reached: dict[int, int] = {}
    for plan in played.plans:
        for request_id in plan.preempted:
            reached.pop(request_id, None)
        for start in plan.started:
            assert start.spec.request_id not in reached
            reached[start.spec.request_id] = start.num_cached_tokens
        for request_id, computed, new in zip(
            plan.request_ids.tolist(), plan.num_computed.tolist(), plan.num_new.tolist(), strict=True
        ):
            assert reached[request_id] == computed
            reached[request_id] = computed + new
    for _, spec in world.arrivals:
        event = played.finished.get(spec.request_id)
        if event is not None and spec.request_id not in _aborted(played):
            assert reached[spec.request_id] == spec.num_prompt_tokens + event.num_output_tokens - 1


@law(100)
@given(worlds())
def test_sampling_rows_and_delivered_tokens_agree(world: World) -> None:
    played = play(world)
    sampled = Counter(request_id for plan in played.plans for request_id in plan.request_ids[plan.samples].tolist())
    for request_id, count in sampled.items():
        missing = count - len(played.tokens.get(request_id, []))
        assert missing in ((0, 1) if request_id in _aborted(played) else (0,))


@law(100)
@given(worlds())
def test_budget_and_sequence_cap_are_never_exceeded(world: World) -> None:
    for plan in play(world).plans:
        assert 0 < int(plan.num_new.sum()) <= world.config.max_num_batched_tokens
        assert plan.num_rows <= plan.num_running <= world.config.max_num_seqs
        assert 0 <= plan.num_free_blocks < world.config.num_blocks


@law(100)
@given(worlds())
def test_causes_come_before_effects(world: World) -> None:
    """Arrival, then first schedule, then tokens in strictly growing time, then the end."""
    played = play(world)
    arrived = {spec.request_id: when for when, spec in world.arrivals}
    scheduled: dict[int, int] = {}
    for boundary, plan in zip(played.boundaries, played.plans, strict=True):
        for request_id in plan.request_ids.tolist():
            scheduled.setdefault(request_id, boundary)
    for request_id, times in played.token_times.items():
        assert arrived[request_id] <= scheduled[request_id] < times[0]
        assert times == sorted(set(times))


@law(100)
@given(worlds(misfortunes=False))
def test_no_step_is_idle_while_a_request_waits(world: World) -> None:
    """From the first arrival on there is a plan at every boundary until the last request has ended."""
    played = play(world)
    arrived = [when for when, spec in world.arrivals if spec.request_id not in played.refused]
    unfinished = {
        boundary
        for spec_id, when in ((spec.request_id, when) for when, spec in world.arrivals)
        if spec_id not in played.refused
        for boundary in range(when, played.token_times[spec_id][-1])
    }
    assert set(played.boundaries) == unfinished
    assert min(played.boundaries, default=None) == min(arrived, default=None)
