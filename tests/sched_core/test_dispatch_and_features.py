"""Which graph a step uses, and the numbers that its duration depends on."""

from __future__ import annotations

import pytest

from tests.builders import make_harness, make_request
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes, GraphMode, default_capture_sizes, dispatch
from twinserve.sched_core.features import step_features

SIZES = CaptureSizes(decode=(1, 2, 4, 8), mixed=(16, 64))


@pytest.mark.parametrize(
    ("num_tokens", "num_rows", "expected"),
    [
        (1, 1, (GraphMode.DECODE, 1)),
        (3, 3, (GraphMode.DECODE, 4)),
        (8, 8, (GraphMode.DECODE, 8)),
        (9, 9, (GraphMode.MIXED, 16)),
        (3, 2, (GraphMode.MIXED, 16)),
        (64, 2, (GraphMode.MIXED, 64)),
        (65, 2, (GraphMode.EAGER, 65)),
    ],
)
def test_smallest_graph_that_holds_the_step_is_used(
    num_tokens: int, num_rows: int, expected: tuple[GraphMode, int]
) -> None:
    choice = dispatch(num_tokens, num_rows, SIZES)
    assert (choice.mode, choice.num_padded_tokens) == expected


def test_without_graphs_every_step_is_eager() -> None:
    assert dispatch(7, 7, NO_GRAPHS).mode is GraphMode.EAGER


def test_features_count_decodes_and_chunks_apart() -> None:
    harness = make_harness(max_num_batched_tokens=32)
    harness.add(make_request(0, 20), make_request(1, 100))
    harness.step()  # 20 and 12
    harness.add(make_request(2, 10))
    plan = harness.begin()  # decode at 21, chunk of 31 after 12
    features = step_features(plan, SIZES)
    assert (features.num_tokens, features.num_rows, features.num_decodes) == (32, 2, 1)
    assert features.decode_context == 21
    assert (features.prefill_tokens, features.prefill_context) == (31, 12 + 31)
    assert features.prefill_pairs == sum(range(12 + 1, 12 + 31 + 1))
    assert (features.num_samples, features.num_started) == (1, 0)
    assert (features.graph_mode, features.num_padded_tokens) == (GraphMode.MIXED, 64)


def test_features_of_a_decode_only_step() -> None:
    harness = make_harness()
    harness.add(*(make_request(i, 10 + i) for i in range(3)))
    harness.step()
    features = step_features(harness.begin(), SIZES)
    assert (features.num_decodes, features.decode_context) == (3, 11 + 12 + 13)
    assert (features.prefill_tokens, features.prefill_pairs, features.prefill_context) == (0, 0, 0)
    assert (features.graph_mode, features.num_padded_tokens) == (GraphMode.DECODE, 4)


def test_new_prompt_of_one_token_counts_as_a_decode_that_was_started() -> None:
    harness = make_harness()
    harness.add(make_request(0, 1))
    features = step_features(harness.begin())
    assert (features.num_decodes, features.decode_context, features.num_started) == (1, 1, 1)


def test_decode_graphs_have_small_sizes_and_every_sixteenth_up_to_the_cap() -> None:
    assert default_capture_sizes("decode", 64, 512) == CaptureSizes(decode=(1, 2, 4, 8, 16, 32, 48, 64))
    assert default_capture_sizes("decode", 20, 512).decode == (1, 2, 4, 8, 16, 20)
    assert default_capture_sizes("decode", 3, 512).decode == (1, 2, 3)
    assert default_capture_sizes("none", 64, 512) == NO_GRAPHS


@pytest.mark.parametrize(("max_num_seqs", "budget"), [(1, 8), (64, 512), (256, 8192), (7, 100)])
def test_capture_sizes_ascend_and_reach_the_largest_step(max_num_seqs: int, budget: int) -> None:
    sizes = default_capture_sizes("mixed", max_num_seqs, budget)
    for column, largest in ((sizes.decode, min(max_num_seqs, 512)), (sizes.mixed, min(budget, 1024))):
        assert list(column) == sorted(set(column))
        assert column[-1] == largest
