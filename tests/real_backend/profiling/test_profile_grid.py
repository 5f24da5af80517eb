"""Laws of the profile's grid: every step can run, every axis and every graph's edge is covered, nothing is random."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.worlds import law
from twinserve.real_backend.profiling.draws import Draws
from twinserve.real_backend.profiling.grid import Grid, make_grid
from twinserve.real_backend.profiling.shape import Limits, Row, Shape
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes, default_capture_sizes

NOTE = Limits(max_num_batched_tokens=512, max_num_seqs=64, max_model_len=4096, num_blocks=40_000, block_size=16)
LARGE = Limits(max_num_batched_tokens=8192, max_num_seqs=256, max_model_len=4096, num_blocks=40_000, block_size=16)
SMALL_POOL = Limits(max_num_batched_tokens=512, max_num_seqs=64, max_model_len=4096, num_blocks=140, block_size=256)

limits = st.builds(
    Limits,
    max_num_batched_tokens=st.integers(1, 600),
    max_num_seqs=st.integers(1, 70),
    max_model_len=st.integers(1, 5000),
    num_blocks=st.integers(1, 400),
    block_size=st.sampled_from([1, 16, 256]),
)


def grid_of(limits: Limits) -> Grid:
    return make_grid(limits, sizes_of(limits))


def sizes_of(limits: Limits) -> CaptureSizes:
    return default_capture_sizes("mixed", limits.max_num_seqs, limits.max_num_batched_tokens)


def is_decode(shape: Shape) -> bool:
    return shape.num_tokens == len(shape.rows)


def is_prefill(shape: Shape) -> bool:
    return all(row.num_new > 1 for row in shape.rows)


@law(max_examples=30)
@given(limits)
def test_every_step_is_one_that_the_engine_could_run(limits: Limits) -> None:
    for shape in make_grid(limits, sizes_of(limits), density=0.2).shapes:
        assert 1 <= len(shape.rows) <= limits.max_num_seqs
        assert sum(row.num_new for row in shape.rows) <= limits.max_num_batched_tokens
        assert all(row.num_new >= 1 and row.num_computed >= 0 for row in shape.rows)
        assert all(row.num_known <= limits.max_model_len for row in shape.rows)
        assert sum(-(-row.context // limits.block_size) for row in shape.rows) <= limits.num_blocks


@law(max_examples=30)
@given(limits)
def test_a_row_of_one_token_continues_a_request_and_samples(limits: Limits) -> None:
    rows = [row for shape in make_grid(limits, NO_GRAPHS, density=0.2).shapes for row in shape.rows]
    assert all(row.num_computed >= 1 and row.samples for row in rows if row.num_new == 1)


@pytest.mark.parametrize("limits", [NOTE, LARGE, SMALL_POOL])
def test_rows_are_in_a_schedulers_order_and_no_step_is_there_twice(limits: Limits) -> None:
    shapes = grid_of(limits).shapes
    assert len(set(shapes)) == len(shapes)
    for shape in shapes:
        kinds = [(row.num_new > 1, row.num_computed == 0) for row in shape.rows]
        assert kinds == sorted(kinds)


@pytest.mark.parametrize("limits", [NOTE, LARGE, SMALL_POOL])
def test_nothing_is_left_out_where_the_pool_holds_every_request_once(limits: Limits) -> None:
    assert grid_of(limits).num_skipped == 0


def test_steps_that_the_pool_cannot_hold_are_counted() -> None:
    tight = Limits(max_num_batched_tokens=512, max_num_seqs=64, max_model_len=4096, num_blocks=20, block_size=16)
    grid = grid_of(tight)
    assert grid.num_skipped > 0
    assert grid.shapes


@pytest.mark.parametrize("limits", [NOTE, LARGE])
def test_every_graph_has_a_step_that_fills_it_and_one_just_above(limits: Limits) -> None:
    sizes, shapes = sizes_of(limits), grid_of(limits).shapes
    decode_sizes = {len(shape.rows) for shape in shapes if is_decode(shape)}
    other_sizes = {shape.num_tokens for shape in shapes if not is_decode(shape)}
    assert set(sizes.decode) <= decode_sizes
    assert {size + 1 for size in sizes.decode if size < limits.max_num_seqs} <= decode_sizes
    assert set(sizes.mixed) <= other_sizes
    assert {size + 1 for size in sizes.mixed if size < limits.max_num_batched_tokens} <= other_sizes


@pytest.mark.parametrize("limits", [NOTE, LARGE])
def test_decode_steps_reach_from_one_short_request_to_the_longest_full_batch(limits: Limits) -> None:
    decodes = [shape for shape in grid_of(limits).shapes if shape.family == "decode"]
    assert all(is_decode(shape) for shape in decodes)
    assert {1, limits.max_num_seqs} <= {len(shape.rows) for shape in decodes}
    assert Shape.of("decode", [Row(limits.max_model_len - 2, 1)]) in decodes
    fullest = max(shape.num_blocks(limits.block_size) for shape in decodes)
    all_longest = limits.max_num_seqs * -(-limits.max_context // limits.block_size)
    assert fullest >= 0.95 * min(all_longest, limits.num_blocks)
    skews = [max(row.context for row in shape.rows) / min(row.context for row in shape.rows) for shape in decodes]
    assert min(skews) == 1
    assert max(skews) > 20


@pytest.mark.parametrize("limits", [NOTE, LARGE])
def test_prefill_steps_span_chunk_length_and_context_with_and_without_sampling(limits: Limits) -> None:
    prefills = [shape for shape in grid_of(limits).shapes if shape.family == "prefill"]
    assert all(is_prefill(shape) for shape in prefills)
    singles = [shape.rows[0] for shape in prefills if len(shape.rows) == 1]
    longest_chunk = min(limits.max_num_batched_tokens, limits.max_context)
    assert {16, longest_chunk} <= {row.num_new for row in singles}
    assert min(row.num_computed for row in singles) == 0
    assert max(row.context for row in singles) == limits.max_context
    assert {row.samples for row in singles} == {True, False}
    assert max(len(shape.rows) for shape in prefills) > 4


@pytest.mark.parametrize("limits", [NOTE, LARGE])
def test_mixed_steps_fill_the_budget_or_stay_below_with_few_and_many_decodes(limits: Limits) -> None:
    mixed = [shape for shape in grid_of(limits).shapes if shape.family == "mixed"]
    num_decodes = [sum(row.num_new == 1 for row in shape.rows) for shape in mixed]
    assert not any(is_decode(shape) or is_prefill(shape) for shape in mixed)
    assert {1, limits.max_num_seqs - 1} <= set(num_decodes)
    full = [shape for shape in mixed if shape.num_tokens == limits.max_num_batched_tokens]
    assert len(mixed) / 10 < len(full) < len(mixed)
    assert any(all(row.samples for row in shape.rows) for shape in full)
    assert any(not all(row.samples for row in shape.rows) for shape in full)


def test_eager_steps_above_the_largest_graph_are_measured_too() -> None:
    largest = max(sizes_of(LARGE).mixed)
    above = [shape for shape in grid_of(LARGE).shapes if shape.num_tokens > largest]
    assert {"prefill", "mixed", "bucket_edge"} <= {shape.family for shape in above}


def test_the_grid_depends_on_limits_graphs_and_seed_alone() -> None:
    sizes = sizes_of(NOTE)
    assert make_grid(NOTE, sizes, seed=3) == make_grid(NOTE, sizes, seed=3)
    assert make_grid(NOTE, sizes, seed=3) != make_grid(NOTE, sizes, seed=4)
    assert make_grid(NOTE, sizes) != make_grid(NOTE, NO_GRAPHS)


def test_density_thins_the_drawn_steps_only() -> None:
    sizes = sizes_of(NOTE)
    thin, usual = make_grid(NOTE, sizes, density=0.1), make_grid(NOTE, sizes)
    assert len(thin.shapes) < len(usual.shapes) / 2
    assert Shape.of("decode", [Row(16, 1)] * 64) in thin.shapes


@law(max_examples=100)
@given(num_tokens=st.integers(0, 3000), count=st.integers(1, 9), longest=st.integers(1, 700), seed=st.integers(0, 99))
def test_chunks_add_up_and_none_is_longer_than_a_request(num_tokens: int, count: int, longest: int, seed: int) -> None:
    limits = Limits(
        max_num_batched_tokens=4000, max_num_seqs=9, max_model_len=longest + 1, num_blocks=400, block_size=16
    )
    rows = Draws(limits, (seed,)).chunks(num_tokens, count)
    assert sum(row.num_new for row in rows) == (num_tokens if num_tokens >= 2 and longest > 2 else 0)
    assert all(row.num_new >= 2 and row.context <= longest for row in rows)
