"""Errors and their parts: laws of timing recorded plans again, and sums that add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.experiments.helpers.records import MS, Life, make_record
from tests.sim_backend.measured_steps import made_up
from twinserve.experiments.metrics import MetricsConfig
from twinserve.experiments.metrics.window import measurement_window
from twinserve.experiments.validation.error_split import split_errors
from twinserve.experiments.validation.figures import FIGURES, figures
from twinserve.experiments.validation.recorded import read_recorded_run
from twinserve.experiments.validation.step_times import StepTimes, measured_times, predicted_times, step_errors
from twinserve.experiments.validation.warp import TimeWarp, warped
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.calibration.calibrated import CalibratedCostModel
from twinserve.sim_backend.calibration.values import StepTerms, Throttle
from twinserve.sim_backend.linear import LinearCostModel, LinearTerms

steps = st.lists(st.tuples(st.integers(0, 10**10), st.integers(1, 10**9)), min_size=1, max_size=20)


def timeline(waits_and_durations):
    """Starts, ends and durations of steps that follow each other after the given idle times."""
    waits, durations = np.array(waits_and_durations, dtype=np.int64).T
    ends = np.cumsum(waits + durations)
    return ends - durations, ends, durations


def throttling():
    """A cost model under which every prefill makes the next one longer."""
    terms = StepTerms(dense_knots_ms=((1.0, 2.0),), throttled_ms=5.0)
    throttle = Throttle(time_constant_ms=200.0, from_share=0.0)
    calibration = made_up(dict.fromkeys(GraphMode, terms), throttles=dict.fromkeys(GraphMode, throttle))
    return CalibratedCostModel(calibration)


@given(steps, st.lists(st.integers(0, 10**12), max_size=20))
def test_a_warp_by_the_recorded_durations_moves_nothing(recorded, times):
    assert TimeWarp(*timeline(recorded))(times).tolist() == times


@given(steps, st.lists(st.integers(1, 10**9), min_size=20, max_size=20))
def test_warped_steps_take_the_new_durations_and_idle_time_stays(recorded, new):
    starts, ends, durations = timeline(recorded)
    new = np.array(new[: len(durations)])
    warp = TimeWarp(starts, ends, new)
    assert (warp(ends) - warp(starts) == new).all()
    assert (warp(starts)[1:] - warp(ends)[:-1] == starts[1:] - ends[:-1]).all()


@given(steps, st.lists(st.integers(0, 10**11), max_size=20))
def test_a_warp_keeps_the_order_of_times(recorded, times):
    starts, ends, durations = timeline(recorded)
    moved = TimeWarp(starts, ends, durations // 3 + 1)(sorted(times))
    assert (np.diff(moved) >= 0).all()


def busy_record():
    """Two requests in five steps of 10 ms without a pause."""
    spans = [{"step_id": i, "start_ns": 10 * i * MS, "end_ns": 10 * (i + 1) * MS} for i in range(5)]
    lives = Life(token_ms=(10, 20, 30)), Life(arrival_ms=15, token_ms=(30, 40, 50))
    return make_record(*lives, steps=spans)


def figures_of(record):
    return figures(record, measurement_window(record.requests, MetricsConfig()))


def test_steps_twice_as_long_without_idle_time_double_every_latency_and_halve_every_rate():
    record = busy_record()
    before, after = figures_of(record), figures_of(warped(record, [20 * MS] * 5))
    for name in FIGURES:
        factor = 0.5 if name.endswith("throughput") else 2
        assert after[name] == pytest.approx(factor * before[name])


def test_only_latencies_that_hold_a_changed_step_change():
    record = busy_record()
    moved = warped(record, [10 * MS] * 4 + [35 * MS]).requests
    assert moved["last_token_ns"] == [30 * MS, 75 * MS]
    assert moved["first_token_ns"] == record.requests["first_token_ns"]


@pytest.fixture(scope="module")
def run(eventful_run):
    """With device times, which a CPU does not have: all but a tenth and 50 us of each interval."""
    run = read_recorded_run(eventful_run)
    times = zip(run.record.steps["start_ns"], run.record.steps["end_ns"], strict=True)
    device = [round(0.9 * (end - start)) - 50_000 for start, end in times]
    return replace(run, record=replace(run.record, steps={**run.record.steps, "device_ns": device}))


MODEL = LinearCostModel(LinearTerms(base_ms=1.5, per_token_ms=0.04, host_gap_ms=0.2, host_per_row_us=10.0))


def test_the_recorded_times_again_leave_no_error_but_feedback(run):
    measured = measured_times(run)
    for figure in split_errors(run, measured, measured, run.record).values():
        assert figure.real == figure.simulated
        assert (figure.step_time_percent, figure.host_gap_percent, figure.feedback_percent) == (0, 0, 0)


def test_parts_add_up_to_the_whole_error(run):
    found = split_errors(run, measured_times(run), predicted_times(run, MODEL), busy_record())
    assert list(found) == list(FIGURES)
    for figure in found.values():
        parts = (figure.step_time_percent, figure.host_gap_percent, figure.feedback_percent)
        assert sum(parts) == pytest.approx(figure.error_percent)
        assert figure.error_percent == pytest.approx((figure.simulated / figure.real - 1) * 100)
    assert any(abs(figure.host_gap_percent) > 1 for figure in found.values())


@pytest.mark.parametrize("part", ["device", "gap"])
def test_a_part_that_is_predicted_exactly_has_no_share(run, part):
    measured = measured_times(run)
    device = measured.device * (1.0 if part == "device" else 1.3)
    gap = measured.host_gap * (1.0 if part == "gap" else 1.3)
    found = split_errors(run, measured, StepTimes(device=device, interval=device + gap), run.record)
    shares = [figure.step_time_percent if part == "device" else figure.host_gap_percent for figure in found.values()]
    assert shares == pytest.approx([0.0] * len(FIGURES), abs=1e-4)


def test_predictions_are_the_cost_models_and_errors_are_against_what_was_measured(run):
    predicted, measured = predicted_times(run, MODEL), measured_times(run)
    rows, tokens = (np.array(run.record.steps[name]) for name in ("num_rows", "num_padded_tokens"))
    assert predicted.host_gap == pytest.approx(2e5 + 1e4 * rows)
    assert predicted.device == pytest.approx(1.5e6 + 4e4 * tokens, abs=1)
    every = step_errors(run, measured, predicted)
    assert set(every) == {"all", "eager"}
    interval = every["all"]["interval"]
    assert interval.measured_ms == pytest.approx(measured.interval.sum() / 1e6)
    assert interval.bias_percent == pytest.approx((predicted.interval.sum() / measured.interval.sum() - 1) * 100)
    doubled = step_errors(run, measured, StepTimes(device=2 * measured.device, interval=2 * measured.interval))
    for error in doubled["all"].values():
        assert (error.bias_percent, error.mape_percent, error.p95_percent) == pytest.approx((100, 100, 100))


def test_recorded_times_do_not_change_what_a_step_is_predicted_to_take_only_pauses_do(run):
    """Not even where the cost model remembers what ran before."""
    recorded = run.record
    start, end = (np.array(recorded.steps[name]) for name in ("start_ns", "end_ns"))
    late = np.arange(len(start)) * 10**9  # a second between all steps
    paused = replace(recorded, steps={**recorded.steps, "start_ns": start + late, "end_ns": end + late})
    predicted, slower, rested = (
        predicted_times(replace(run, record=record), throttling()).interval
        for record in (recorded, warped(recorded, 3 * (end - start)), paused)
    )
    assert (slower == predicted).all()
    assert rested.sum() < predicted.sum()


def test_without_device_times_everything_is_step_time(eventful_run):
    run = read_recorded_run(eventful_run)
    predicted = predicted_times(run, MODEL)
    assert not predicted.host_gap.any()
    assert not measured_times(run).host_gap.any()
    assert set(step_errors(run, measured_times(run), predicted)["all"]) == {"interval"}
