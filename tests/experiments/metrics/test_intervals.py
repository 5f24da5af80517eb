"""Confidence intervals and means over seeds."""

import json

import numpy as np
import pytest
from scipy.stats import binom

from tests.experiments.helpers.records import Life, make_record
from twinserve.experiments.metrics import MetricsConfig, aggregate_seeds, compute_metrics, mean_over_seeds
from twinserve.experiments.metrics.intervals import bootstrap_intervals, quantile_interval


@pytest.mark.parametrize(("count", "quantile"), [(20, 0.5), (100, 0.9), (256, 0.95), (1000, 0.99)])
def test_order_statistics_cover_the_quantile_as_promised(count, quantile):
    low, high = quantile_interval(np.arange(1.0, count + 1), quantile, 0.95)
    # the quantile lies between the ranks low and high exactly when at least low and fewer than high samples are below
    coverage = binom.cdf(high - 1, count, quantile) - binom.cdf(low - 1, count, quantile)
    assert 0.95 <= coverage < 0.999
    tighter = binom.cdf(high - 2, count, quantile) - binom.cdf(low - 1, count, quantile)
    assert tighter < 0.975


def test_median_interval_of_ten_samples_is_ranks_two_and_nine():
    assert quantile_interval(np.arange(10.0, 0.0, -1.0), 0.5, 0.95) == (2.0, 9.0)


def test_p99_of_few_requests_has_no_upper_bound():
    low, high = quantile_interval(np.arange(256.0), 0.99, 0.95)
    assert low is not None
    assert high is None
    assert quantile_interval(np.array([]), 0.99, 0.95) == (None, None)


def test_bootstrap_draws_whole_requests():
    # two requests of 100 equal gaps each: resampled by gap the median is certain to be a mixture, by request it is not
    gaps, owners = np.repeat([10, 30], 100) * 1_000_000, np.repeat([0, 1], 100)
    (interval,) = bootstrap_intervals(gaps, owners, [40], 400, 0.95, np.random.default_rng(0))
    assert interval == (10.0, 30.0)


def test_bootstrap_of_equal_requests_agrees_with_numpy():
    pattern = np.random.default_rng(1).integers(1, 1000, 37)
    gaps, owners = np.tile(pattern, 5) * 1_000_000, np.repeat(np.arange(5), 37)
    (interval,) = bootstrap_intervals(gaps, owners, [73.0], 50, 0.9, np.random.default_rng(0))
    assert interval == pytest.approx([np.percentile(np.tile(pattern, 5), 73)] * 2)


def test_intervals_enclose_the_figure_and_repeat_exactly():
    rng = np.random.default_rng(3)
    lives = [Life(token_ms=np.cumsum(rng.integers(1, 60, 20)).tolist()) for _ in range(60)]
    config = MetricsConfig.model_validate({"percentiles": [50, 90], "bootstrap": {"samples": 200}})
    first, second = (compute_metrics(make_record(*lives), config) for _ in range(2))
    assert json.dumps(first) == json.dumps(second)
    intervals = first["confidence_intervals"]
    for name in ("p50_ttft_ms", "p50_tpot_ms", "p50_e2el_ms", "p50_itl_ms", "p90_itl_ms"):
        low, high = intervals[name]
        assert low <= first[name] <= high
        assert low < high


def test_no_intervals_unless_asked():
    assert compute_metrics(make_record(Life(token_ms=[5])), MetricsConfig())["confidence_intervals"] is None


def test_seed_mean_is_the_mean_of_seeds_with_a_student_interval():
    found = mean_over_seeds([10.0, 12.0, 14.0])
    assert (found.mean, found.count) == (12.0, 3)
    assert found.high - found.mean == pytest.approx(4.302653 * 2 / 3**0.5)
    assert found.low + found.high == pytest.approx(24.0)


def test_seeds_without_a_figure_are_left_out():
    assert mean_over_seeds([None, 5.0]).count == 1
    assert mean_over_seeds([None, 5.0]).low is None
    assert mean_over_seeds([None, None]).mean is None


def test_aggregate_is_not_the_percentile_of_pooled_requests():
    calm, busy = ([Life(token_ms=[t]) for t in times] for times in ([10] * 99 + [1000], [20] * 100))
    results = [compute_metrics(make_record(*lives), MetricsConfig()) for lives in (calm, busy)]
    mean = aggregate_seeds(results)["p99_ttft_ms"].mean
    assert mean == pytest.approx((10 + 990 * 0.01 + 20) / 2)
    pooled = compute_metrics(make_record(*calm, *busy), MetricsConfig())["p99_ttft_ms"]
    assert pooled == 20
    assert mean != pooled


def test_aggregate_keeps_figures_only():
    found = aggregate_seeds([{"a": 1, "b": "x", "c": None, "d": {}}, {"a": 3, "b": "y", "c": 4.0, "d": {}}])
    assert set(found) == {"a", "c"}
    assert (found["a"].mean, found["c"].mean) == (2.0, 4.0)
    assert aggregate_seeds([]) == {}
