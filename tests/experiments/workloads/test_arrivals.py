"""Arrival processes: absolute schedules of unit gaps."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.workloads.arrivals import ArrivalConfig, arrival_times_ns

_READ = TypeAdapter(ArrivalConfig)
PROCESSES = [
    {"process": "poisson"},
    {"process": "constant"},
    {"process": "gamma", "burstiness": 0.5},
    {"process": "gamma", "cv": 2.0},
    {"process": "gamma", "burstiness": inf},
    {"process": "gamma", "cv": 0.0},
]


def times_s(size: int = 10_000, seed: int = 0, **keys: object) -> np.ndarray:
    config = _READ.validate_python({"process": "poisson"} | keys)
    return arrival_times_ns(config, size, np.random.default_rng(seed)) / 1e9


@pytest.mark.parametrize("process", PROCESSES)
@given(rate=st.floats(0.01, 1000), factor=st.sampled_from([2.0, 4.0, 0.5]))
@settings(max_examples=10, deadline=None)
def test_another_rate_is_the_same_traffic_played_faster(process: dict[str, object], rate: float, factor: float) -> None:
    slow, fast = (times_s(50, **process, request_rate=r) for r in (rate, rate * factor))
    np.testing.assert_allclose(fast * factor, slow, atol=1e-8)


@pytest.mark.parametrize("process", PROCESSES)
def test_times_never_go_back_and_never_start_before_zero(process: dict[str, object]) -> None:
    times = times_s(**process, request_rate=3.0)
    assert times[0] >= 0
    assert (np.diff(times) >= 0).all()


@pytest.mark.parametrize("process", PROCESSES)
def test_realised_rate_is_the_wanted_one_over_ten_thousand_requests(process: dict[str, object]) -> None:
    # The mean of n gaps strays by cv / sqrt(n): 1 % for Poisson at 10,000, so three times that is allowed for.
    spread = 3 * {0.5: 2**0.5}.get(process.get("burstiness"), 2.0 if process.get("cv") == 2.0 else 1.0) / 100
    assert 10_000 / times_s(**process, request_rate=200.0)[-1] == pytest.approx(200.0, rel=spread)
    assert 10_000 / times_s(**process, request_rate=200.0, normalize=True)[-1] == pytest.approx(200.0, rel=1e-9)


def test_constant_schedule_has_no_accumulated_rounding() -> None:
    times = arrival_times_ns(
        _READ.validate_python({"process": "constant", "request_rate": 3.0}), 30_000, np.random.default_rng()
    )
    assert times[-1] == 10_000 * 10**9
    assert set(np.diff(times).tolist()) <= {333_333_333, 333_333_334}


def test_infinite_burstiness_is_constant() -> None:
    expected = np.arange(1, 6) / 4.0
    for shape in ({"burstiness": inf}, {"cv": 0.0}):
        np.testing.assert_allclose(times_s(5, process="gamma", request_rate=4.0, **shape), expected)


@pytest.mark.parametrize("process", [*PROCESSES, {"process": "all_at_once"}])
def test_infinite_rate_is_all_at_zero(process: dict[str, object]) -> None:
    rate = {} if process["process"] == "all_at_once" else {"request_rate": inf, "normalize": True}
    assert not times_s(20, **process, **rate).any()


@pytest.mark.parametrize(("shape", "cv"), [({"burstiness": 0.25}, 2.0), ({"cv": 2.0}, 2.0), ({"burstiness": 4.0}, 0.5)])
def test_burstiness_is_one_over_cv_squared(shape: dict[str, float], cv: float) -> None:
    gaps = np.diff(times_s(50_000, process="gamma", request_rate=1.0, **shape))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)


def test_burstiness_and_its_cv_give_the_same_times() -> None:
    by_b, by_cv = (
        times_s(100, process="gamma", request_rate=1.0, **shape) for shape in ({"burstiness": 0.25}, {"cv": 2.0})
    )
    np.testing.assert_array_equal(by_b, by_cv)


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(times_s(50_000, request_rate=1.0))
    assert gaps.std() == pytest.approx(1.0, rel=0.02)
    assert np.quantile(gaps, 0.5) == pytest.approx(np.log(2), rel=0.03)


def test_first_at_zero_shifts_the_schedule_by_the_first_gap() -> None:
    waits, starts = times_s(100, request_rate=2.0), times_s(100, request_rate=2.0, first_at_zero=True)
    assert starts[0] == 0
    np.testing.assert_allclose(starts, waits - waits[0], atol=2e-9)


def test_normalised_schedule_ends_exactly_at_n_over_rate() -> None:
    assert times_s(256, request_rate=2.0, normalize=True)[-1] == 128.0
    assert times_s(257, request_rate=2.0, normalize=True, first_at_zero=True)[-1] == 128.0


@pytest.mark.parametrize("strategy", ["linear", "exponential"])
def test_ramp_goes_from_its_start_to_its_end_rate(strategy: str) -> None:
    ramp = {"ramp_up_strategy": strategy, "ramp_up_start_rps": 1.0, "ramp_up_end_rps": 16.0}
    rates = 1 / np.diff(times_s(101, process="constant", **ramp), prepend=0.0)
    middle = {"linear": 8.5, "exponential": 4.0}[strategy]
    np.testing.assert_allclose(rates[[0, 50, 100]], [1.0, middle, 16.0], rtol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"request_rate": 0.0},
        {"request_rate": -1.0},
        {"request_rate": float("nan")},
        {"request_rate": 1.0, "ramp_up_strategy": "linear"},
        {"ramp_up_strategy": "linear", "ramp_up_start_rps": 1.0},
        {"process": "gamma", "request_rate": 1.0},
        {"process": "gamma", "request_rate": 1.0, "burstiness": 1.0, "cv": 1.0},
        {"process": "gamma", "request_rate": 1.0, "cv": -1.0},
        {"request_rate": 1.0, "burstiness": 2.0},
    ],
)
def test_meaningless_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        times_s(5, **wrong)


def test_a_rate_too_low_for_the_clock_is_an_error() -> None:
    with pytest.raises(ConfigError, match="raise the request rate"):
        times_s(5, request_rate=1e-12)
