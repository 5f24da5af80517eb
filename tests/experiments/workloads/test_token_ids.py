"""Token ids out of streams."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinserve.real_backend.inputs.token_ids import prompt_token_ids, token_ids_of
from twinserve.sched_core.requests.prompt import Prompt, Segment, TokenIds


@given(
    stream=st.integers(0, (1 << 63) - 1),
    offset=st.integers(0, 1 << 40),
    cuts=st.lists(st.integers(0, 100), max_size=4).map(sorted),
    vocab_size=st.integers(1, 1 << 32),
)
def test_equal_segments_give_equal_ids_however_they_are_cut(
    stream: int, offset: int, cuts: list[int], vocab_size: int
) -> None:
    whole = Segment(stream, offset, 100)
    edges = [0, *cuts, 100]
    parts = [token_ids_of(whole.part(a, b), vocab_size) for a, b in pairwise(edges)]
    ids = token_ids_of(whole, vocab_size)
    np.testing.assert_array_equal(np.concatenate(parts), ids)
    assert ids.shape == (100,)
    assert ids.min() >= 0
    assert ids.max() < vocab_size


def test_ids_do_not_change_between_machines_and_versions() -> None:
    assert token_ids_of(Segment(5, 3, 4), 151_643).tolist() == [62_322, 111_012, 141_207, 70_544]


def test_streams_and_positions_differ() -> None:
    ids = np.stack([token_ids_of(Segment(stream, 0, 1000), 1 << 32) for stream in range(20)])
    assert len(np.unique(ids)) > 19_990


def test_ids_are_spread_evenly_over_the_vocabulary() -> None:
    counts = np.bincount(token_ids_of(Segment(1, 0, 100_000), 10), minlength=10)
    np.testing.assert_allclose(counts, 10_000, rtol=0.04)


def test_explicit_ids_are_kept() -> None:
    prompt = Prompt([*Prompt.of_token_ids([5, 6]).pieces, Segment(1, 0, 2)])
    assert isinstance(prompt.pieces[0], TokenIds)
    assert prompt_token_ids(prompt, 100).tolist()[:2] == [5, 6]
    assert len(prompt_token_ids(prompt, 100)) == 4
    assert prompt_token_ids(Prompt([]), 100).tolist() == []


@pytest.mark.parametrize("vocab_size", [0, -1, (1 << 32) + 1])
def test_impossible_vocabulary_is_refused(vocab_size: int) -> None:
    with pytest.raises(ValueError, match="vocab_size"):
        token_ids_of(Segment(0, 0, 1), vocab_size)
