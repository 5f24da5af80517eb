"""Synthetic workloads: what clients send, share, quote and give up."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.experiments.helpers.workload_builders import POISSON, arrivals_ns, build, input_lens, output_lens, synthetic
from twinserve.experiments.errors import ConfigError
from twinserve.sched_core.events import Finished, FinishReason
from twinserve.sched_core.requests.prompt import Segment

FIXED = {"dist": "fixed", "value": 100}


def fixed(value: int) -> dict[str, object]:
    return {"dist": "fixed", "value": value}


def talk(**keys: object) -> object:
    sessions = {"turns": fixed(3), "think_time_s": 2.0, "think_time_dist": "constant"}
    plain = {"num_prompts": 7, "input_len": fixed(10), "output_len": fixed(4), "sessions": sessions}
    return synthetic(**(plain | keys))


def test_same_seed_and_repeat_give_the_same_workload() -> None:
    assert synthetic(seed=3, repeat=1) == synthetic(seed=3, repeat=1)


def test_each_seed_and_each_repeat_is_a_draw_of_its_own() -> None:
    draws = {tuple(input_lens(synthetic(seed=s, repeat=r))) for s, r in [(0, 0), (1, 0), (0, 1), (1, 1)]}
    assert len(draws) == 4


def test_points_of_a_sweep_share_random_numbers() -> None:
    base = synthetic()
    faster = synthetic(arrival={"process": "poisson", "request_rate": 10.0})
    shorter = synthetic(output_len=fixed(3))
    assert input_lens(faster) == input_lens(base)
    assert output_lens(faster) == output_lens(base)
    np.testing.assert_allclose(np.array(arrivals_ns(faster)) * 2, arrivals_ns(base), atol=2)
    assert arrivals_ns(shorter) == arrivals_ns(base)
    assert input_lens(shorter) == input_lens(base)


def test_prompts_have_exactly_the_length_asked_for() -> None:
    assert set(input_lens(synthetic(input_len=fixed(1)))) == {1}
    assert set(input_lens(synthetic(input_len=fixed(777)))) == {777}


def test_no_two_prompts_share_a_token_unless_asked() -> None:
    streams = [piece.stream for spec in synthetic().requests for piece in spec.prompt.pieces]
    assert len(streams) == len(set(streams)) == 50


def test_request_ids_count_from_zero_in_order_of_arrival() -> None:
    workload = synthetic()
    assert [spec.request_id for spec in workload.requests] == list(range(50))
    assert arrivals_ns(workload) == sorted(arrivals_ns(workload))


def test_max_tokens_is_the_true_length_unless_another_choice_is_made() -> None:
    workload = synthetic()
    assert not workload.output_lens
    assert workload.info["max_tokens"] == "true_length"
    assert all(10 <= spec.max_tokens <= 200 for spec in workload.requests)


def test_fixed_max_tokens_hides_true_lengths_below_it() -> None:
    truth = output_lens(synthetic())
    workload = synthetic(max_tokens="fixed", max_tokens_value=100)
    assert {spec.max_tokens for spec in workload.requests} == {100}
    assert workload.output_lens == {i: true for i, true in enumerate(truth) if true < 100}


def test_max_model_len_choice_asks_for_all_that_is_left() -> None:
    workload = synthetic(max_tokens="max_model_len", max_model_len=4096)
    assert all(spec.max_tokens + spec.num_prompt_tokens == 4096 for spec in workload.requests)
    assert len(workload.output_lens) == 50


def test_policies_get_no_hint_unless_asked() -> None:
    assert {spec.predicted_output_len for spec in synthetic().requests} == {None}


@pytest.mark.parametrize("word", ["true", True])
def test_true_prediction_is_the_true_length(word: object) -> None:
    workload = synthetic(predicted_output_len=word, max_tokens="fixed", max_tokens_value=1000)
    assert [spec.predicted_output_len for spec in workload.requests] == output_lens(workload)


def test_noisy_prediction_is_right_on_average_with_the_spread_asked_for() -> None:
    noise = {"predicted_output_len": "noisy", "predicted_output_cv": 0.5}
    workload = synthetic(num_prompts=20_000, output_len=fixed(10_000), **noise)
    ratios = np.array([spec.predicted_output_len for spec in workload.requests]) / 10_000
    assert ratios.mean() == pytest.approx(1.0, rel=0.01)
    assert ratios.std() == pytest.approx(0.5, rel=0.03)


def test_prediction_is_never_below_one_token() -> None:
    noise = {"predicted_output_len": "noisy", "predicted_output_cv": 3.0}
    assert min(spec.predicted_output_len for spec in synthetic(output_len=fixed(1), **noise).requests) == 1


def test_classes_share_the_requests_by_weight() -> None:
    classes = [{"client": "paid", "priority": -1, "weight": 1.0}, {"client": "free", "priority": 5, "weight": 3.0}]
    workload = synthetic(num_prompts=8000, classes=classes)
    counts = Counter((spec.client, spec.priority) for spec in workload.requests)
    assert set(counts) == {("paid", -1), ("free", 5)}
    assert counts["paid", -1] / 8000 == pytest.approx(0.25, abs=0.02)


def test_aborts_strike_the_share_and_after_the_time_asked_for() -> None:
    workload = synthetic(num_prompts=8000, abort={"probability": 0.25, "after_s": 1.5})
    assert set(workload.abort_after_ns.values()) == {1_500_000_000}
    assert len(workload.abort_after_ns) / 8000 == pytest.approx(0.25, abs=0.02)
    assert not synthetic(abort={"probability": 0.0, "after_s": 1.0}).abort_after_ns


def test_closed_loop_cap_reaches_the_traffic() -> None:
    workload = synthetic(max_concurrency=3, arrival={"process": "all_at_once"})
    assert len(workload.traffic().due(0)) == 3


def test_clipped_prompts_and_outputs_are_cut_and_counted() -> None:
    limits = {"max_input_len": 50, "max_output_len": 20}
    plain, workload = synthetic(), synthetic(**limits)
    assert input_lens(workload) == [min(length, 50) for length in input_lens(plain)]
    assert output_lens(workload) == [min(length, 20) for length in output_lens(plain)]
    assert workload.info["num_clipped_inputs"] == sum(length > 50 for length in input_lens(plain))


def test_dropped_requests_are_counted_and_the_others_stay_as_they_are() -> None:
    plain, workload = synthetic(), synthetic(max_input_len=50, over_length="drop")
    assert workload.requests == tuple(spec for spec in plain.requests if spec.num_prompt_tokens <= 50)
    assert workload.info["num_dropped_over_length"] == 50 - len(workload.requests)


def test_over_length_error_names_the_request_and_the_key() -> None:
    with pytest.raises(ConfigError, match=r"workload.max_output_len: request 0 has a longer output"):
        synthetic(output_len=fixed(30), max_output_len=20, over_length="error")


def test_a_workload_without_requests_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no request is left"):
        synthetic(input_len=fixed(30), max_input_len=20, over_length="drop")


def test_requests_that_cannot_fit_are_warned_of_once_with_a_remedy() -> None:
    workload = synthetic(input_len=fixed(900), output_len=fixed(200), max_model_len=1024)
    assert len(workload.warnings) == 1
    assert "50 of 50" in workload.warnings[0]
    assert "workload.max_input_len" in workload.warnings[0]
    assert not synthetic(input_len=fixed(824), output_len=fixed(200), max_model_len=1024).warnings


def test_shared_prefix_comes_before_the_input_and_is_the_same_in_a_group() -> None:
    workload = synthetic(shared_prefix={"num_groups": 2, "prefix_len": 64}, input_len=FIXED)
    starts = [spec.prompt.encode(0, 64) for spec in workload.requests]
    rests = [spec.prompt.encode(64, 164) for spec in workload.requests]
    assert set(input_lens(workload)) == {164}
    assert len(set(starts)) == 2
    assert len(set(rests)) == 50


def test_prefix_popularity_follows_its_zipf_exponent() -> None:
    prefix = {"num_groups": 3, "prefix_len": 8, "zipf_theta": 1.0}
    workload = synthetic(num_prompts=20_000, shared_prefix=prefix)
    counts = Counter(spec.prompt.pieces[0].stream for spec in workload.requests)
    shares = [counts[stream] / 20_000 for stream in sorted(counts)]
    np.testing.assert_allclose(shares, np.array([6, 3, 2]) / 11, atol=0.015)


def test_later_turns_quote_everything_said_before() -> None:
    requests = talk().requests
    assert input_lens(talk()) == [10, 24, 38, 10, 24, 38, 10]
    for earlier, later in [(0, 1), (1, 2), (3, 4)]:
        said = len(requests[earlier].prompt)
        assert requests[later].prompt.encode(0, said) == requests[earlier].prompt.encode(0, said)
        answer = list(requests[later].prompt.slice(said, said + 4))
        assert answer == [Segment(requests[earlier].output_stream, 0, 4)]


def test_turns_follow_each_other_after_the_think_time() -> None:
    workload = talk()
    assert {turn: (after.after, after.delay_ns) for turn, after in workload.follow_ups.items()} == {
        1: (0, 2 * 10**9),
        2: (1, 2 * 10**9),
        4: (3, 2 * 10**9),
        5: (4, 2 * 10**9),
    }


def test_a_follow_up_is_sent_only_when_its_turn_has_come() -> None:
    traffic = talk(arrival={"process": "all_at_once"}).traffic()
    assert [spec.request_id for spec in traffic.due(0)] == [0, 3, 6]
    done = Finished(request_id=0, reason=FinishReason.LENGTH, num_output_tokens=4, output_token_ids=())
    traffic.finished(done, 5 * 10**9)
    assert traffic.due(6 * 10**9) == []
    assert [spec.request_id for spec in traffic.due(7 * 10**9)] == [1]


def test_conversation_keeps_its_system_prompt_and_its_client() -> None:
    classes = [{"client": name} for name in "abcd"]
    requests = talk(num_prompts=60, shared_prefix={"num_groups": 5, "prefix_len": 16}, classes=classes).requests
    for start in range(0, 60, 3):
        assert len({spec.prompt.encode(0, 26) for spec in requests[start : start + 3]}) == 1
        assert len({spec.client for spec in requests[start : start + 3]}) == 1
    assert len({spec.client for spec in requests}) == 4


def test_dropping_a_turn_ends_its_conversation() -> None:
    workload = talk(max_input_len=20, over_length="drop")
    assert [spec.request_id for spec in workload.requests] == [0, 3, 6]
    assert not workload.follow_ups


def test_later_turns_quote_only_what_a_limited_answer_says() -> None:
    assert input_lens(talk(max_output_len=1))[:3] == [10, 21, 32]


@given(turns=st.integers(1, 6), num_prompts=st.integers(1, 40), seed=st.integers(0, 5))
@settings(max_examples=30, deadline=None)
def test_conversations_add_up_to_the_number_of_prompts(turns: int, num_prompts: int, seed: int) -> None:
    sessions = {"turns": {"dist": "uniform", "min": 1, "max": turns}}
    workload = talk(num_prompts=num_prompts, sessions=sessions, seed=seed)
    assert len(workload.requests) == num_prompts
    assert len(workload.follow_ups) == num_prompts - workload.info["num_conversations"]
    assert all(turn.after == request_id - 1 for request_id, turn in workload.follow_ups.items())


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_prompts": 0},
        {"num_prompt": 5},
        {"max_tokens": "fixed"},
        {"max_tokens_value": 5},
        {"predicted_output_len": "noisy"},
        {"predicted_output_cv": 0.1},
        {"max_concurrency": 0},
        {"abort": {"probability": 1.5, "after_s": 1.0}},
        {"abort": {"probability": 0.5, "after_s": -1.0}},
        {"shared_prefix": {"prefix_len": 0}},
        {"classes": [{"weight": 0.0}]},
        {"over_length": "cut"},
    ],
)
def test_meaningless_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        synthetic(**wrong)


def test_unknown_kind_is_refused() -> None:
    with pytest.raises(ValidationError, match="note_bench"):
        build(kind="sinthetic", arrival=POISSON)
