"""When a request ends."""

from __future__ import annotations

import pytest

from tests.builders import Harness, make_harness, make_request
from twinserve.sched_core.events import FinishReason
from twinserve.sched_core.requests.spec import SamplingParams

EOS = 99


def _generate(tokens: list[int], *, max_tokens: int = 16, max_model_len: int = 4096, **sampling: object) -> Harness:
    harness = make_harness(max_model_len=max_model_len)
    params = SamplingParams(eos_token_ids=(EOS,), **sampling)  # type: ignore[arg-type]
    harness.add(make_request(0, 3, max_tokens=max_tokens, sampling=params))
    for token in tokens:
        if harness.engine.has_unfinished:
            harness.step([token])
    return harness


def test_end_of_sequence_stops_and_is_delivered() -> None:
    harness = _generate([10, EOS, 12])
    assert harness.delivered == {0: [10, EOS]}
    assert harness.finished == {0: FinishReason.STOP}


def test_stop_id_stops_and_is_delivered() -> None:
    harness = _generate([10, 42, 12], stop_token_ids=(42,))
    assert harness.delivered == {0: [10, 42]}
    assert harness.finished == {0: FinishReason.STOP}


def test_max_tokens_stops() -> None:
    harness = _generate([10, 11, 12], max_tokens=2)
    assert harness.delivered == {0: [10, 11]}
    assert harness.finished == {0: FinishReason.LENGTH}


def test_ignored_end_of_sequence_does_not_stop() -> None:
    harness = _generate([10, EOS, 12], ignore_eos=True)
    assert harness.delivered == {0: [10, EOS, 12]}
    assert harness.finished == {}


@pytest.mark.parametrize("params", [{}, {"stop_token_ids": (EOS,), "ignore_eos": True}])
def test_stop_tokens_stop_even_below_min_tokens(params: dict[str, object]) -> None:
    """Keeping a model from drawing them too early is the sampler's work, not the scheduler's."""
    harness = _generate([EOS], min_tokens=5, **params)
    assert harness.finished == {0: FinishReason.STOP}


def test_model_length_always_wins() -> None:
    harness = _generate([1] * 10, max_tokens=100, max_model_len=10, min_tokens=50)
    assert harness.num_outputs == {0: 7}
    assert harness.finished == {0: FinishReason.LENGTH}


def test_stop_token_on_the_last_allowed_token_is_reported_as_stop() -> None:
    assert _generate([1, EOS], max_tokens=2).finished == {0: FinishReason.STOP}


def test_backend_may_end_a_request() -> None:
    harness = make_harness()
    harness.add(make_request(0), make_request(1), make_request(2))
    harness.step(ended=(1,))
    assert harness.finished == {1: FinishReason.STOP}
    assert harness.step() == {0: 1, 2: 1}


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 5])
def test_no_token_is_computed_after_the_last_one_needed(max_tokens: int) -> None:
    lengths = [5, 17, 33]
    harness = make_harness(max_num_batched_tokens=20)
    harness.add(*(make_request(i, length, max_tokens=max_tokens) for i, length in enumerate(lengths)))
    scheduled = sum(sum(step.values()) for step in harness.run())
    assert scheduled == sum(length + max_tokens - 1 for length in lengths)


@pytest.mark.parametrize(
    ("ended", "finished"),
    [
        ((1,), {0: FinishReason.ABORTED, 1: FinishReason.STOP}),
        ((2,), {0: FinishReason.ABORTED, 2: FinishReason.STOP}),
        ((0,), {0: FinishReason.ABORTED}),
    ],
)
def test_the_backends_word_is_about_the_same_row_when_another_one_is_aborted(
    ended: tuple[int, ...], finished: dict[int, FinishReason]
) -> None:
    harness = make_harness()
    harness.add(*(make_request(index, length=4, max_tokens=9) for index in range(3)))
    harness.step()
    plan = harness.begin()
    harness.abort(0)
    harness.finish(plan, ended=ended)
    assert harness.finished == finished
