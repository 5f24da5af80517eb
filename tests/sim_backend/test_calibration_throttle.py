"""A device that slows down under load: how load is remembered, what it does to a step, and how it is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim_backend.measured_steps import ENGINE, made_up
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.calibration.calibrated import CalibratedCostModel
from twinserve.sim_backend.calibration.recent_work import TIME_CONSTANTS_MS, RecentWork, recent_shares
from twinserve.sim_backend.calibration.values import Calibration, HostGap, StepTerms, Throttle
from twinserve.sim_backend.fitting.accuracy import judge
from twinserve.sim_backend.fitting.fit import fit_calibration
from twinserve.sim_backend.fitting.held_out import held_out_blocks
from twinserve.sim_backend.fitting.measured import MeasuredSteps
from twinserve.sim_backend.fitting.throttle_fit import fit_throttles

MS = 1_000_000
DECODE = StepTerms(dense_knots_ms=((1, 5.0),), throttled_ms=0.2)
MIXED = StepTerms(
    dense_knots_ms=((64, 6.0), (256, 9.0)),
    per_context_token_us=0.03,
    per_prefill_pair_us=0.001,
    per_throttled_token_us=4.0,
    per_throttled_context_token_us=0.02,
)
THROTTLE = Throttle(time_constant_ms=50.0, from_share=0.4)
SLOWER = Throttle(time_constant_ms=100.0, from_share=0.2)

times = st.floats(0.01, 500.0).map(lambda ms: ms * MS)
shares = st.floats(0.0, 1.0)


def calibration(throttle: Throttle | None = THROTTLE) -> Calibration:
    return made_up(
        {GraphMode.DECODE: DECODE, GraphMode.MIXED: MIXED},
        host_gap=HostGap(base_ms=0.5),
        throttles={} if throttle is None else {GraphMode.MIXED: throttle, GraphMode.DECODE: SLOWER},
    )


def decode_step() -> StepFeatures:
    return StepFeatures(8, 8, 8, 8000, 0, 0, 0, 8, 0, GraphMode.DECODE, 8)


def prefill_step(tokens: int = 256) -> StepFeatures:
    return StepFeatures(tokens, 1, 0, 0, tokens, 20_000, tokens, 1, 0, GraphMode.MIXED, 64 if tokens <= 64 else 256)


def price(model: CalibratedCostModel, steps: list[StepFeatures], start: int = 0) -> list[int]:
    """Intervals of steps that follow each other without a pause."""
    intervals = []
    for step in steps:
        intervals.append(model.step_ns(step, start))
        start += intervals[-1]
    return intervals


@given(share=shares, interval=times, time_constant=times)
def test_a_step_in_two_halves_leaves_what_the_whole_leaves(share: float, interval: float, time_constant: float) -> None:
    whole, halves = RecentWork(time_constant), RecentWork(time_constant)
    first = whole.mean_during(0, share * interval, interval)
    whole.passes(0, share * interval, interval)
    parts = []
    for start in (0.0, interval / 2):
        parts.append(halves.mean_during(start, share * interval / 2, interval / 2))
        halves.passes(start, share * interval / 2, interval / 2)
    assert first == pytest.approx(sum(parts) / 2, abs=1e-9)
    after = [work.mean_during(interval, 0, 1.0) for work in (whole, halves)]
    assert after[0] == pytest.approx(after[1], abs=1e-9)


@given(steps=st.lists(st.tuples(times, shares, times), min_size=1, max_size=20))
def test_shares_lie_between_nothing_and_all(steps: list[tuple[float, float, float]]) -> None:
    starts, at = [], 0.0
    for interval, _, pause in steps:
        starts.append(at)
        at += interval + pause
    interval = np.array([step[0] for step in steps])
    found = recent_shares(np.array(starts), interval, interval * np.array([step[1] for step in steps]))
    assert found.shape == (len(steps), len(TIME_CONSTANTS_MS))
    assert (found >= -1e-9).all()
    assert (found <= 1 + 1e-9).all()


def test_steady_prefill_is_slowed_down_more_and_more_up_to_the_limit() -> None:
    slowed, free = (price(CalibratedCostModel(calibration(each)), [prefill_step()] * 60) for each in (THROTTLE, None))
    extra = np.array(slowed) - np.array(free)
    assert extra[0] == 0
    assert (np.diff(extra) >= 0).all()
    share = 9.02 / 9.52  # the device's part of an interval without a slowdown, which is where the share ends up
    assert extra[-1] == pytest.approx(256 * 4.0 * 1e3 * THROTTLE.extent(share), rel=0.02)


def test_a_pause_or_decodes_let_the_device_recover() -> None:
    cold = price(CalibratedCostModel(calibration()), [prefill_step()])[0]
    rested = CalibratedCostModel(calibration())
    hot = price(rested, [prefill_step()] * 40)
    assert rested.step_ns(prefill_step(), sum(hot) + 1000 * MS) == cold
    decoding = price(
        CalibratedCostModel(calibration()), [prefill_step()] * 40 + [decode_step()] * 100 + [prefill_step()]
    )
    assert decoding[-1] == cold
    assert decoding[40] > decoding[-2]  # the first decode is slowed down as well


def test_without_a_throttle_order_does_not_matter() -> None:
    steps = [prefill_step(), decode_step(), prefill_step(64), prefill_step()]
    model = calibration(None)
    forward = price(CalibratedCostModel(model), steps)
    assert price(CalibratedCostModel(model), steps[::-1]) == forward[::-1]


def test_what_if_questions_leave_no_trace_and_are_answered_as_if_nothing_had_run() -> None:
    asked, left_alone = CalibratedCostModel(calibration()), CalibratedCostModel(calibration())
    cold = left_alone.without_memory().step_ns(prefill_step(), 0)
    start = 0
    for _ in range(40):
        assert [asked.without_memory().step_ns(prefill_step(), 0) for _ in range(3)] == [cold] * 3
        (interval,) = price(asked, [prefill_step()], start)
        assert [interval] == price(left_alone, [prefill_step()], start)
        start += interval
    assert interval > cold


def bursts(throttle: Throttle | None, seed: int = 0) -> MeasuredSteps:
    """Steps of a loop, as ``calibration(throttle)`` prices them: bursts of prefills between decodes."""
    rng = np.random.default_rng(seed)
    features: list[StepFeatures] = []
    while len(features) < 3000:
        features += [decode_step()] * int(rng.integers(1, 40))
        for _ in range(int(rng.integers(1, 25))):
            tokens, pairs, context = rng.integers((33, 100, 0), (257, 400_000, 60_000)).tolist()
            features.append(prefill_step(tokens)._replace(prefill_pairs=pairs, decode_context=context))
    interval = np.array(price(CalibratedCostModel(calibration(throttle)), features), dtype=np.float64)
    device = interval - 0.5 * MS
    columns = {
        name: np.array([step[index] for step in features], dtype=np.float64)
        for index, name in enumerate(StepFeatures._fields)
        if name != "graph_mode"
    }
    busy = device * (columns["prefill_tokens"] > 0)
    return MeasuredSteps(
        features=columns,
        modes=np.array([str(step.graph_mode) for step in features]),
        interval_ns=interval,
        device_ns=device,
        in_loop=np.ones(len(features), dtype=bool),
        held_out=held_out_blocks(np.arange(len(features), dtype=np.float64)),
        spread_percent=np.full(len(features), np.nan),
        shares=recent_shares(np.cumsum(interval) - interval, interval, busy),
    )


def test_a_throttle_is_found_and_explains_the_steps() -> None:
    steps = bursts(THROTTLE)
    throttles = fit_throttles(steps)
    assert throttles == {GraphMode.MIXED: THROTTLE, GraphMode.DECODE: SLOWER}
    without, found = (fit_calibration(ENGINE, steps, "made up", each) for each in (None, throttles))
    assert found.modes[GraphMode.DECODE].throttled_ms == pytest.approx(0.2, rel=0.1)
    assert found.modes[GraphMode.MIXED].per_throttled_token_us == pytest.approx(4.0, rel=0.1)
    assert found.modes[GraphMode.MIXED].per_throttled_context_token_us == pytest.approx(0.02, rel=0.1)
    error = judge(found, steps).error()
    assert error is not None
    assert error.mape_percent < 0.3
    assert found.held_out is not None
    assert without.held_out is not None
    assert without.held_out.mape_percent > 3 * found.held_out.mape_percent


def test_no_throttle_is_found_where_there_is_none() -> None:
    steps = bursts(None)
    noise = 1 + 0.01 * np.random.default_rng(1).standard_normal(len(steps))
    assert fit_throttles(replace(steps, device_ns=steps.device_ns * noise)) == {}


@pytest.mark.parametrize(
    ("time_constant_ms", "from_share"), [(0.0, 0.5), (float("nan"), 0.5), (50.0, 1.0), (50.0, -0.1)]
)
def test_a_throttle_out_of_range_is_refused(time_constant_ms: float, from_share: float) -> None:
    with pytest.raises(ValueError, match=r"time_constant_ms|from_share"):
        Throttle(time_constant_ms=time_constant_ms, from_share=from_share)
