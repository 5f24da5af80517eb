"""The linear cost model: expressible shapes, units, and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.linear import LinearCostModel, LinearTerms
from twinserve.sim_backend.piecewise import PiecewiseLinear


def decodes(rows, context_each=1000, started=0, padded=None):
    size = padded or rows
    return StepFeatures(rows, rows, rows, rows * context_each, 0, 0, 0, rows, started, GraphMode.EAGER, size)


def prefill(tokens, started=1):
    pairs = tokens * (tokens + 1) // 2
    return StepFeatures(tokens, 1, 0, 0, tokens, pairs, tokens, 1, started, GraphMode.EAGER, tokens)


def ms(model, features):
    return model.step_ns(features, 0) / 1e6


def test_floor_holds_until_the_line_crosses_it():
    model = LinearCostModel(LinearTerms(floor_ms=15, base_ms=5, per_token_ms=0.08))
    assert ms(model, decodes(64)) == 15
    assert ms(model, prefill(125)) == 15
    assert ms(model, prefill(512)) == pytest.approx(5 + 0.08 * 512)


def test_context_is_paid_by_decode_tokens_only_and_on_top_of_the_floor():
    model = LinearCostModel(LinearTerms(floor_ms=36, per_context_token_us=0.02))
    assert ms(model, decodes(30, context_each=1000)) == pytest.approx(36 + 30_000 * 2e-5)
    assert ms(model, prefill(400)) == 36


def test_host_gap_grows_with_rows_and_started_requests():
    model = LinearCostModel(LinearTerms(base_ms=1, host_gap_ms=0.5, host_per_row_us=10, host_per_started_us=100))
    assert ms(model, decodes(20, started=3)) == pytest.approx(1 + 0.5 + 0.2 + 0.3)


def test_decode_only_steps_have_terms_of_their_own():
    prefills = LinearTerms(floor_ms=36, base_ms=4, per_token_ms=0.095)
    model = LinearCostModel(prefills, decode_only=LinearTerms(floor_ms=30, per_context_token_us=0.02))
    assert ms(model, decodes(10, context_each=500)) == pytest.approx(30.1)
    assert ms(model, prefill(512)) == pytest.approx(4 + 0.095 * 512)


def test_knots_price_padded_tokens():
    model = LinearCostModel(LinearTerms(knots=((8, 2.0), (16, 4.0), (32, 4.0))))
    assert ms(model, decodes(3, padded=4)) == 2.0
    assert ms(model, decodes(9, padded=12)) == pytest.approx(3.0)
    assert ms(model, decodes(20, padded=32)) == 4.0


def test_an_idle_engine_wakes_at_once():
    assert LinearCostModel(LinearTerms(base_ms=1)).wake_ns(123) == 123


def test_tiny_step_takes_at_least_one_nanosecond():
    assert LinearCostModel(LinearTerms(per_token_ms=1e-12)).step_ns(decodes(1), 0) == 1


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ({"base_ms": -1.0}, "base_ms"),
        ({"floor_ms": float("nan")}, "floor_ms"),
        ({"base_ms": 1.0, "host_per_row_us": float("inf")}, "host_per_row_us"),
        ({}, "no time"),
        ({"per_context_token_us": 1.0}, "no time"),
        ({"base_ms": 1.0, "knots": ((1, 1.0),)}, "knots"),
        ({"knots": ((8, 1.0), (8, 2.0))}, "ascend"),
        ({"knots": ((8, 1.0), (9, -2.0))}, "not negative"),
    ],
)
def test_impossible_terms_are_refused_by_name(terms, named):
    with pytest.raises(ValueError, match=named):
        LinearTerms(**terms)


@given(
    floor=st.floats(0.1, 50),
    slope=st.floats(0, 1),
    context=st.floats(0, 1),
    smaller=st.integers(1, 500),
    more=st.integers(0, 500),
)
def test_more_work_never_takes_less_time(floor, slope, context, smaller, more):
    model = LinearCostModel(LinearTerms(floor_ms=floor, per_token_ms=slope, per_context_token_us=context))
    assert 0 < ms(model, decodes(smaller)) <= ms(model, decodes(smaller + more))
    assert 0 < ms(model, prefill(smaller + 1)) <= ms(model, prefill(smaller + 1 + more))


def test_piecewise_is_constant_before_and_follows_the_last_slope_after_its_knots():
    line = PiecewiseLinear([(10, 5.0), (20, 7.0)])
    assert [line(0), line(10), line(15), line(20), line(40)] == [5.0, 5.0, 6.0, 7.0, 11.0]


def test_piecewise_never_extrapolates_below_its_last_knot():
    assert PiecewiseLinear([(10, 5.0), (20, 3.0)])(1000) == 3.0
