"""Calibrated step times: terms per graph mode, the host gap, and the covered ranges."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim_backend.measured_steps import made_up
from twinserve.sched_core.dispatch import CaptureSizes, GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.calibration.calibrated import (
    CalibratedCostModel,
    CalibrationRangeError,
    CalibrationRangeWarning,
)
from twinserve.sim_backend.calibration.values import HostGap, StepTerms

CALIBRATION = made_up(
    {
        GraphMode.EAGER: StepTerms(
            dense_knots_ms=((1, 10.0), (101, 20.0)),
            floor_ms=15,
            per_context_token_us=0.1,
            per_prefill_pair_us=0.01,
            per_sample_us=5,
        ),
        GraphMode.DECODE: StepTerms(dense_knots_ms=((1, 8.0),)),
    },
    block_size=256,
    capture_sizes=CaptureSizes(decode=(1, 2, 4)),
    host_gap=HostGap(base_ms=0.5, per_row_us=10, per_started_us=100),
    covered={"num_tokens": (1, 512), "decode_context": (0, 40_000)},
)


def step(mode=GraphMode.EAGER, **changes):
    base = StepFeatures(51, 11, 10, 20_000, 41, 861, 41, 11, 1, mode, 51)
    return base._replace(**changes)


def test_eager_step_sums_its_terms_and_the_host_gap():
    device = 15.0 + 20_000 * 1e-4 + 861 * 1e-5 + 11 * 5e-3
    host = 0.5 + 11 * 0.01 + 0.1
    assert CalibratedCostModel(CALIBRATION).step_ns(step(), 0) == pytest.approx((device + host) * 1e6, abs=1)


def test_host_gap_is_a_part_of_the_step_that_the_device_does_not_change():
    model = CalibratedCostModel(CALIBRATION)
    assert model.host_gap_ns(step()) == pytest.approx((0.5 + 11 * 0.01 + 0.1) * 1e6)
    assert model.host_gap_ns(step(num_padded_tokens=101)) == model.host_gap_ns(step(GraphMode.DECODE))
    with pytest.raises(CalibrationRangeError, match="no terms for mixed steps"):
        model.host_gap_ns(step(GraphMode.MIXED))


def test_launch_floor_hides_a_short_device_time_but_not_the_host_gap():
    light = step(num_padded_tokens=1, decode_context=0, prefill_pairs=0, num_samples=0)
    assert CalibratedCostModel(CALIBRATION).step_ns(light, 0) == pytest.approx(15.71e6, abs=1)


def test_each_graph_mode_has_its_own_terms():
    assert CalibratedCostModel(CALIBRATION).step_ns(step(GraphMode.DECODE), 0) == pytest.approx(8.71e6, abs=1)


def test_graph_mode_without_terms_fails_and_names_those_there_are():
    with pytest.raises(CalibrationRangeError, match="no terms for mixed steps, only for eager, decode"):
        CalibratedCostModel(CALIBRATION).step_ns(step(GraphMode.MIXED), 0)


def test_leaving_the_covered_range_warns_once_per_feature():
    model = CalibratedCostModel(CALIBRATION)
    with pytest.warns(CalibrationRangeWarning, match=r"num_tokens 600 is outside the covered 1\.\.512"):
        model.step_ns(step(num_tokens=600), 0)
    model.step_ns(step(num_tokens=700), 0)
    with pytest.warns(CalibrationRangeWarning, match="decode_context"):
        model.step_ns(step(decode_context=50_000), 0)


def test_leaving_the_covered_range_fails_when_asked_to():
    with pytest.raises(CalibrationRangeError, match="decode_context 50000"):
        CalibratedCostModel(CALIBRATION, "fail").step_ns(step(decode_context=50_000), 0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"modes": {}}, "modes"),
        ({"covered": {"num_token": (1, 2)}}, "num_token"),
        ({"covered": {"num_tokens": (3, 2)}}, "least"),
        ({"num_blocks": 0}, "num_blocks"),
    ],
)
def test_unsound_calibration_is_refused_by_name(changes, named):
    with pytest.raises(ValueError, match=named):
        replace(CALIBRATION, **changes)
