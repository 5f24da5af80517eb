"""Prompts as segments: equal bytes exactly for equal content."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from twinserve.real_backend.inputs.token_ids import prompt_token_ids
from twinserve.sched_core.requests.prompt import Piece, Prompt, Segment, TokenIds
from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.requests.spec import RequestSpec

QUICK = settings(derandomize=True, deadline=None, max_examples=100)


def ids(*token_ids: int) -> Piece:
    return Prompt.of_token_ids(token_ids).pieces[0]


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    segment = st.builds(Segment, st.integers(0, 2), st.integers(0, 3), st.integers(1, 6))
    explicit = st.lists(st.integers(0, 5), min_size=1, max_size=4).map(lambda values: ids(*values))
    return Prompt(draw(st.lists(segment | explicit, max_size=5)))


def atoms(prompt: Prompt) -> list[tuple[str, int, int]]:
    """The prompt token by token: what it is made of, whatever its pieces."""
    tokens: list[tuple[str, int, int]] = []
    for piece in prompt.pieces:
        if isinstance(piece, TokenIds):
            tokens += [("id", token, 0) for token in piece.ids]
        else:
            tokens += [("stream", piece.stream, piece.offset + i) for i in range(piece.length)]
    return tokens


def test_pieces_that_continue_each_other_are_one() -> None:
    prompt = Prompt((Segment(1, 0, 4), Segment(1, 4, 2), Segment(1, 7, 1), ids(5), ids(6)))
    assert prompt.pieces == (Segment(1, 0, 6), Segment(1, 7, 1), ids(5, 6))
    assert len(prompt) == 9


def test_empty_pieces_vanish() -> None:
    assert Prompt((Segment(1, 0, 2), Segment(9, 0, 0), Segment(1, 2, 2))).pieces == (Segment(1, 0, 4),)
    assert len(Prompt(())) == 0


def test_segment_and_explicit_ids_never_look_alike() -> None:
    assert Prompt.of_stream(1, 4).encode(0, 4) != Prompt.of_token_ids([1, 0, 4]).encode(0, 3)


@QUICK
@given(prompts(), prompts())
def test_bytes_are_equal_exactly_for_equal_content(first: Prompt, second: Prompt) -> None:
    equal = atoms(first) == atoms(second)
    assert (first.encode(0, len(first)) == second.encode(0, len(second))) == equal
    assert (first == second) == equal
    if equal:
        assert hash(first) == hash(second)


@QUICK
@given(prompts(), st.integers(0, 10), st.integers(0, 10))
def test_part_of_a_prompt_encodes_as_a_prompt_of_that_part(prompt: Prompt, start: int, length: int) -> None:
    start = min(start, len(prompt))
    end = min(start + length, len(prompt))
    part = Prompt(prompt.slice(start, end))
    assert atoms(part) == atoms(prompt)[start:end]
    assert part.encode(0, len(part)) == prompt.encode(start, end)


@QUICK
@given(prompts(), st.integers(1, 4))
def test_blocks_encode_as_their_parts(prompt: Prompt, size: int) -> None:
    end = len(prompt) // size * size
    expected = [prompt.encode(begin, begin + size) for begin in range(0, end, size)]
    assert list(prompt.encode_blocks(0, end, size)) == expected


@QUICK
@given(prompts().filter(len), st.integers(1, 12), st.integers(1, 4), st.booleans())
def test_request_hashes_its_output_as_the_next_turn_will_quote_it(
    prompt: Prompt, num_outputs: int, size: int, real: bool
) -> None:
    request = Request(RequestSpec(request_id=0, prompt=prompt, max_tokens=99, output_stream=77))
    output: Piece = Segment(77, 0, num_outputs)
    if real:
        output = ids(*range(num_outputs))
        request.output_ids.extend(range(num_outputs))
    quoted = Prompt((*prompt.pieces, output))
    start, end = (length // size * size for length in (len(prompt), len(quoted)))
    sampled = [request.encode_block(begin, size) for begin in range(start, end, size)]
    assert sampled == quoted.encode_blocks(start, end, size)


def test_made_up_ids_do_not_depend_on_how_a_prompt_is_cut() -> None:
    whole = prompt_token_ids(Prompt.of_stream(3, 50), 1000)
    parts = [prompt_token_ids(Prompt((Segment(3, start, 10),)), 1000) for start in range(0, 50, 10)]
    assert np.concatenate(parts).tolist() == whole.tolist()
    assert whole.min() >= 0
    assert whole.max() < 1000
    assert len(set(whole.tolist())) > 40
