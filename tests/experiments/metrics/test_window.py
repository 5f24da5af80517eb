"""Warm-up and cool-down, and the ``metrics:`` section itself."""

import pytest
from pydantic import ValidationError

from tests.experiments.helpers.records import Life, make_record, refused
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.metrics import MetricsConfig, compute_metrics

SECOND = 1000


def cold_start():
    """Ten requests, one a second; the first two meet a cold start of 800 ms, the others wait 50 ms."""
    return [Life(arrival_ms=SECOND * i, token_ms=[SECOND * i + (800 if i < 2 else 50)]) for i in range(10)]


def figures(lives, **config):
    return compute_metrics(make_record(*lives), MetricsConfig(**config))


def test_cold_start_dominates_the_tail_until_it_is_excluded():
    assert figures(cold_start())["p99_ttft_ms"] == 800
    assert figures(cold_start(), warmup_requests=2)["p99_ttft_ms"] == 50


@pytest.mark.parametrize("rule", [{"warmup_requests": 2}, {"warmup_time_s": 2.0}, {"warmup_time_s": 1.5}])
def test_warmup_by_count_and_by_time_exclude_the_same_requests(rule):
    result = figures(cold_start(), **rule)
    window = result["measurement_window"]
    assert (window["num_measured"], window["num_excluded_warmup"], window["start_s"]) == (8, 2, 2.0)
    assert result["completed"] == 8
    assert result["duration"] == pytest.approx(7.05)
    assert result["request_throughput"] == pytest.approx(8 / 7.05)


def test_cooldown_excludes_the_last_arrivals_and_ends_the_duration():
    result = figures(cold_start(), cooldown_time_s=2.0)
    assert result["measurement_window"]["num_excluded_cooldown"] == 2
    assert (result["completed"], result["duration"]) == (8, 7.05)


def test_warmup_counts_arrivals_not_rows():
    late_first = [Life(arrival_ms=500, sent_ms=500, token_ms=[600]), Life(arrival_ms=100, sent_ms=700, token_ms=[900])]
    assert figures(late_first, warmup_requests=1)["mean_ttft_ms"] == 100


def test_a_refused_warmup_request_is_excluded_too():
    result = figures([refused(0), Life(arrival_ms=10, token_ms=[30])], warmup_requests=1)
    assert (result["failed"], result["completed"]) == (0, 1)


@pytest.mark.parametrize(
    "rule", [{"warmup_requests": 10}, {"cooldown_time_s": 9.5}, {"warmup_share": 0.6, "cooldown_requests": 4}]
)
def test_excluding_everything_is_refused_with_the_keys_to_blame(rule):
    with pytest.raises(ConfigError, match=rf"^metrics: .* exclude all 10 requests .*{next(iter(rule))}="):
        figures(cold_start(), **rule)


def test_warmup_by_time_counts_from_the_first_sending_of_a_closed_loop():
    held = [Life(arrival_ms=0, sent_ms=SECOND * (i + 1), token_ms=[SECOND * (i + 1) + 10]) for i in range(10)]
    result = figures(held, warmup_time_s=2.0, cooldown_time_s=1.0)
    window = result["measurement_window"]
    assert (window["num_measured"], window["num_excluded_warmup"], window["start_s"]) == (7, 2, 3.0)


def test_shares_exclude_by_position():
    window = figures(cold_start(), warmup_share=0.2, cooldown_share=0.11)["measurement_window"]
    assert (window["num_excluded_warmup"], window["num_excluded_cooldown"]) == (2, 2)


@pytest.mark.parametrize("wrong", [[0.5], [0.99, 50], "p99", ["p50"], "50,90", 99])
def test_percentiles_are_in_percent_and_a_list(wrong):
    with pytest.raises(ValidationError, match=r"percent: write (50|99)|list of numbers|valid tuple"):
        MetricsConfig.model_validate({"percentiles": wrong})


@pytest.mark.parametrize(
    "section",
    [
        {"slo": {"itl_ms": -5}},
        {"slo": {"ttft_ms": -1}},
        {"slo": {"ttft_ms": float("nan")}},
        {"slo": {"ttft_ms": "500"}},
        {"percentiles": [100]},
        {"percentiles": ["99"]},
        {"percentiles": [0]},
        {"warmup_requests": -1},
        {"warmup_requests": 1.5},
        {"cooldown_time_s": float("inf")},
        {"bootstrap": {"confidence": 1.0}},
        {"warm_up": 3},
    ],
)
def test_bad_settings_are_rejected(section):
    with pytest.raises(ValidationError):
        MetricsConfig.model_validate(section)


def test_percentiles_are_sorted_distinct_and_named_without_needless_decimals():
    config = MetricsConfig.model_validate({"percentiles": [99.9, 50, 50, 99.0], "slo": {"ttft_ms": 500}})
    result = compute_metrics(make_record(*cold_start()), config)
    assert config.percentiles == (50, 99, 99.9)
    names = [name for name in result if name.endswith("_ttft_ms") and name.startswith("p")]
    assert names == ["p50_ttft_ms", "p99_ttft_ms", "p99.9_ttft_ms"]
