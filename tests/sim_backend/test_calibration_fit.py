"""Fitting: known terms come back, scale with time, and are not moved by outliers; what is held out stays apart."""

from __future__ import annotations

import warnings
from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim_backend.measured_steps import ENGINE, scaled, steps_of, timed
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.calibration.calibrated import CalibratedCostModel
from twinserve.sim_backend.calibration.values import HostGap, StepTerms, Throttle
from twinserve.sim_backend.fitting.accuracy import judge
from twinserve.sim_backend.fitting.fit import COVERED, TooFewStepsError, fit_calibration
from twinserve.sim_backend.fitting.held_out import held_out_blocks, held_out_shapes
from twinserve.sim_backend.fitting.level import at_loop_level
from twinserve.sim_backend.fitting.measured import join
from twinserve.sim_backend.fitting.predict import device_ns, host_gap_ns, predicted_ns
from twinserve.sim_backend.fitting.robust import fit_non_negative
from twinserve.sim_backend.fitting.terms import fit_host_gap, fit_terms

MIXED = StepTerms(
    dense_knots_ms=((64.0, 6.0), (256.0, 9.0)),
    per_context_token_us=0.05,
    per_prefill_pair_us=0.001,
    per_prefill_key_us=0.3,
    per_row_us=4.0,
    per_sample_us=15.0,
)
DECODE = StepTerms(dense_knots_ms=((1.0, 5.0), (8.0, 5.2), (32.0, 5.5)), per_context_token_us=0.04, per_sample_us=8.0)
EAGER = StepTerms(dense_knots_ms=((0.0, 2.0), (300.0, 32.0)), floor_ms=11.0, per_context_token_us=0.04)
GAP = HostGap(base_ms=0.3, per_row_us=2.0, per_started_us=100.0, prefill_us=80.0)


def weights(most):
    return st.floats(0, most) | st.just(0.0)


@st.composite
def mixed_terms(draw):
    return StepTerms(
        dense_knots_ms=((64.0, draw(st.floats(1, 20))), (256.0, draw(st.floats(1, 20)))),
        per_context_token_us=draw(weights(0.5)),
        per_prefill_pair_us=draw(weights(0.01)),
        per_prefill_key_us=draw(weights(2)),
        per_row_us=draw(weights(50)),
        per_sample_us=draw(weights(50)),
    )


@settings(max_examples=40, deadline=None)
@given(terms=mixed_terms())
def test_any_mixed_terms_come_back(terms):
    steps = steps_of(terms, GraphMode.MIXED)
    fitted = fit_terms(steps, steps.device_ns, GraphMode.MIXED)
    assert device_ns(fitted, steps) == pytest.approx(steps.device_ns, rel=1e-4)
    for name in ("per_context_token_us", "per_prefill_pair_us", "per_prefill_key_us", "per_row_us", "per_sample_us"):
        assert getattr(fitted, name) == pytest.approx(getattr(terms, name), rel=1e-3, abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(base=st.floats(0.05, 5), rows=weights(20), started=weights(500), prefill=weights(300))
def test_any_host_gap_comes_back(base, rows, started, prefill):
    gap = HostGap(base_ms=base, per_row_us=rows, per_started_us=started, prefill_us=prefill)
    fitted = fit_host_gap(join([steps_of(MIXED, GraphMode.MIXED, gap), steps_of(DECODE, GraphMode.DECODE, gap)]))
    assert astuple(fitted) == pytest.approx(astuple(gap), rel=1e-3, abs=1e-3)


def test_decode_terms_come_back():
    steps = steps_of(DECODE, GraphMode.DECODE)
    fitted = fit_terms(steps, steps.device_ns, GraphMode.DECODE)
    assert fitted.per_context_token_us == pytest.approx(DECODE.per_context_token_us, rel=1e-3)
    assert fitted.per_sample_us == pytest.approx(DECODE.per_sample_us, rel=1e-3)
    assert np.ravel(fitted.dense_knots_ms[1:]) == pytest.approx(np.ravel(DECODE.dense_knots_ms[1:]), rel=1e-3)


@pytest.mark.parametrize("floor_ms", [0.0, 8.0, 11.0, 16.0])
def test_floor_of_eager_steps_is_found(floor_ms):
    terms = StepTerms(dense_knots_ms=EAGER.dense_knots_ms, floor_ms=floor_ms, per_context_token_us=0.04)
    steps = steps_of(terms, GraphMode.EAGER)
    fitted = fit_terms(steps, steps.device_ns, GraphMode.EAGER)
    assert device_ns(fitted, steps) == pytest.approx(steps.device_ns, rel=2e-3)
    if floor_ms:
        assert fitted.floor_ms == pytest.approx(floor_ms, rel=1e-4)


def test_steps_that_the_host_delays_do_not_hide_the_floor():
    steps = steps_of(EAGER, GraphMode.EAGER, count=1200)
    draw = np.random.default_rng(5)
    delayed = np.where(draw.random(1200) < 0.2, draw.uniform(1.2, 2.0, 1200), 1 + 0.03 * draw.standard_normal(1200))
    fitted = fit_terms(steps, steps.device_ns * delayed, GraphMode.EAGER)
    assert fitted.floor_ms == pytest.approx(EAGER.floor_ms, rel=0.02)
    assert device_ns(fitted, steps) == pytest.approx(steps.device_ns, rel=0.08)


def test_several_prefill_rows_cost_the_host_no_more_than_one():
    gap = HostGap(base_ms=1.0, prefill_us=200.0)
    for steps, expected in ((steps_of(MIXED, GraphMode.MIXED), 1.2e6), (steps_of(DECODE, GraphMode.DECODE), 1.0e6)):
        assert host_gap_ns(gap, steps) == pytest.approx(np.full(len(steps), expected))


def test_dense_part_of_eager_and_decode_steps_never_falls():
    draw = np.random.default_rng(3)
    for mode, terms in ((GraphMode.EAGER, EAGER), (GraphMode.DECODE, DECODE)):
        steps = steps_of(terms, mode, noise=0.2 * draw.standard_normal(400).clip(-2, 2))
        levels = [ms for _, ms in fit_terms(steps, steps.device_ns, mode).dense_knots_ms]
        assert levels == sorted(levels)


def test_twice_the_time_is_twice_the_terms():
    steps = join([steps_of(MIXED, GraphMode.MIXED, GAP), steps_of(EAGER, GraphMode.EAGER, GAP)])
    once = fit_calibration(ENGINE, steps, "")
    twice = fit_calibration(ENGINE, scaled(steps, 2.0), "")
    assert predicted_ns(twice, steps) == pytest.approx(2 * predicted_ns(once, steps), rel=1e-4)
    assert astuple(twice.host_gap) == pytest.approx([2 * term for term in astuple(once.host_gap)], rel=1e-4)
    assert twice.modes[GraphMode.EAGER].floor_ms == pytest.approx(2 * once.modes[GraphMode.EAGER].floor_ms, rel=1e-4)


@pytest.mark.parametrize("factor", [0.05, 20.0])
@pytest.mark.parametrize(("terms", "mode"), [(MIXED, GraphMode.MIXED), (EAGER, GraphMode.EAGER)])
def test_outliers_do_not_move_the_fit(terms, mode, factor):
    clean = steps_of(terms, mode, GAP)
    device = clean.device_ns.copy()
    device[::25] *= factor
    fitted = fit_terms(clean, device, mode)
    assert device_ns(fitted, clean) == pytest.approx(clean.device_ns, rel=2e-3)


def test_noise_leaves_the_sum_unbiased():
    noise = 0.04 * np.random.default_rng(1).standard_normal(4000).clip(-3, 3)
    steps = steps_of(MIXED, GraphMode.MIXED, GAP, count=4000, noise=noise)
    error = judge(fit_calibration(ENGINE, steps, ""), steps).error()
    assert abs(error.bias_percent) < 0.2


def test_every_term_is_not_negative_even_where_the_data_say_otherwise():
    columns = np.column_stack([np.ones(50), np.arange(50.0)])
    fitted = fit_non_negative(columns, 100.0 - np.arange(50.0))
    assert (fitted >= 0).all()
    assert fitted[1] == 0


def test_without_device_times_the_interval_is_fitted_and_there_is_no_host_gap():
    steps = steps_of(MIXED, GraphMode.MIXED, GAP)
    unknown = timed(steps, np.full(len(steps), np.nan), steps.interval_ns)
    calibration = fit_calibration(ENGINE, unknown, "")
    assert calibration.host_gap == HostGap()
    assert calibration.held_out.mape_percent < 2  # started requests are no device term


def test_vectorised_formula_is_that_of_the_cost_model():
    parts = [
        steps_of(terms, mode, GAP, count=60)
        for terms, mode in ((MIXED, GraphMode.MIXED), (DECODE, GraphMode.DECODE), (EAGER, GraphMode.EAGER))
    ]
    steps = join(parts)
    calibration = fit_calibration(ENGINE, steps, "")
    model = CalibratedCostModel(calibration)
    names = [name for name in StepFeatures._fields if name != "graph_mode"]
    rows = zip(*(steps.features[name].astype(int).tolist() for name in names), steps.modes, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        priced = [
            model.step_ns(StepFeatures(**dict(zip(names, counts, strict=True)), graph_mode=GraphMode(str(mode))), 0)
            for *counts, mode in rows
        ]
    assert priced == pytest.approx(predicted_ns(calibration, steps), abs=1)


def test_a_slowdown_is_added_to_the_floor_as_in_the_cost_model():
    terms = StepTerms(dense_knots_ms=((1, 1.0),), floor_ms=5.0, throttled_ms=2.0)
    steps = steps_of(terms, GraphMode.MIXED, count=5)
    slowed = replace(steps, shares=np.ones_like(steps.shares))
    throttle = Throttle(time_constant_ms=50.0, from_share=0.4)
    assert device_ns(terms, slowed, throttle) == pytest.approx(7e6)


def test_held_out_rows_do_not_influence_the_fit():
    steps = steps_of(MIXED, GraphMode.MIXED, GAP)
    spoilt = timed(
        steps,
        np.where(steps.held_out, 3 * steps.device_ns, steps.device_ns),
        np.where(steps.held_out, 5 * steps.interval_ns, steps.interval_ns),
    )
    clean, other = (fit_calibration(ENGINE, each, "") for each in (steps, spoilt))
    assert (clean.modes, clean.host_gap) == (other.modes, other.host_gap)
    assert clean.held_out.mape_percent < 0.1 < other.held_out.mape_percent


def test_covered_ranges_are_those_of_the_fitted_steps():
    steps = steps_of(MIXED, GraphMode.MIXED)
    fitted = steps.where(~steps.held_out)
    covered = fit_calibration(ENGINE, steps, "").covered
    assert tuple(covered) == COVERED
    assert all(covered[name] == (fitted.features[name].min(), fitted.features[name].max()) for name in COVERED)


def test_a_mode_with_too_few_steps_has_no_terms_and_no_mode_at_all_is_an_error():
    few = steps_of(DECODE, GraphMode.DECODE, count=5)
    calibration = fit_calibration(ENGINE, join([steps_of(MIXED, GraphMode.MIXED), few]), "")
    assert list(calibration.modes) == [GraphMode.MIXED]
    with pytest.raises(TooFewStepsError, match="decode 5, mixed 0"):
        fit_calibration(ENGINE, few, "")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=50))
def test_equal_shapes_are_on_the_same_side_of_the_split(shapes):
    held = held_out_shapes([*shapes, *shapes])
    assert (held[: len(shapes)] == held[len(shapes) :]).all()
    assert (held[: len(shapes)] == held_out_shapes(shapes)).all()


def test_about_a_fifth_is_held_out_in_blocks_of_neighbours():
    shapes = held_out_shapes([(float(x), float(y)) for x in range(50) for y in range(40)])
    assert 0.17 < shapes.mean() < 0.23
    blocks = held_out_blocks(np.arange(1600, dtype=float))
    assert blocks.mean() == 0.2
    assert np.abs(np.diff(blocks.astype(int))).sum() == 2 * 20 - 1


@pytest.mark.parametrize("factor", [0.95, 1.0, 1.08])
def test_shapes_launched_alone_are_brought_to_the_speed_of_the_loop(factor):
    loop = steps_of(MIXED, GraphMode.MIXED, GAP, count=200, seed=5)
    faster = scaled(steps_of(MIXED, GraphMode.MIXED, GAP), 1 / factor)
    alone = replace(faster, in_loop=np.zeros(len(faster), dtype=bool))
    levelled, factors = at_loop_level(join([alone, loop]))
    assert factors[GraphMode.MIXED] == pytest.approx(factor, rel=1e-4)
    assert levelled.device_ns == pytest.approx(device_ns(MIXED, levelled), rel=1e-3)
    gaps = faster.interval_ns - faster.device_ns
    assert (levelled.interval_ns - levelled.device_ns)[: len(faster)] == pytest.approx(gaps)


def test_steps_measured_in_one_way_only_stay_as_they_are():
    loop = steps_of(MIXED, GraphMode.MIXED, GAP)
    levelled, factors = at_loop_level(loop)
    assert factors == {}
    assert (levelled.device_ns == loop.device_ns).all()


def test_one_slow_step_of_a_rare_graph_makes_no_level_of_its_own():
    steps = steps_of(DECODE, GraphMode.DECODE)
    tokens = steps.features["num_padded_tokens"]
    rare = np.where(tokens == 8, np.where(np.cumsum(tokens == 8) == 1, 8, 32), tokens)  # one step of 8 is left
    features = {**steps.features, "num_padded_tokens": rare}
    slow = np.where(rare == 8, 20 * steps.device_ns, steps.device_ns)
    fitted = fit_terms(replace(steps, features=features), slow, GraphMode.DECODE)
    assert [size for size, _ in fitted.dense_knots_ms] == [1, 32]
    assert all(ms < 10 for _, ms in fitted.dense_knots_ms)
