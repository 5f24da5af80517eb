"""The console table and the shape of the result it is made from."""

import json

from tests.experiments.helpers.records import Life, make_record, refused
from tests.paths import DATA
from twinserve.experiments.metrics import MetricsConfig, compute_metrics
from twinserve.experiments.report import format_table
from twinserve.experiments.sweep.sweep_table import format_sweep

GOLDEN = DATA / "result_golden.json"


def golden_run():
    lives = [Life(arrival_ms=100 * i, token_ms=[100 * i + 60 + 20 * k for k in range(4)]) for i in range(4)]
    steps = [
        {"num_tokens": 40, "num_rows": 2, "num_running": 2, "num_free_blocks": 6},
        {"num_tokens": 2, "num_rows": 2, "num_running": 2, "num_free_blocks": 4},
    ]
    config = MetricsConfig.model_validate({"slo": {"ttft_ms": 100}, "warmup_requests": 1})
    stats = {"prefix_cache_queries": 40, "prefix_cache_hits": 10}
    cancelled = Life(arrival_ms=90, reason="abort", end_ms=120)
    record = make_record(*lives, refused(400), cancelled, steps=steps, stats=stats)
    return compute_metrics(record, config, num_blocks=8)


def test_result_has_the_keys_and_figures_of_schema_version_1():
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))
    found = golden_run()
    assert list(found) == list(expected)
    assert found == expected


def test_table_has_the_layout_of_vllm():
    result = golden_run() | {"request_rate": 2, "max_concurrency": 8}
    assert format_table(result).splitlines() == [
        "============ Serving Benchmark Result ============",
        "Successful requests:                     3",
        "Failed requests:                         1",
        "  prompt_exceeds_kv_cache:               1",
        "Aborted requests:                        1",
        "Excluded as warm-up:                     1",
        "Maximum request concurrency:             8",
        "Request rate configured (RPS):           2.00",
        "Benchmark duration (s):                  0.33",
        "Total input tokens:                      30",
        "Total generated tokens:                  12",
        "Request throughput (req/s):              9.09",
        "Request goodput (req/s):                 9.09",
        "Requests within all limits (%):          60.00",
        "  within TTFT limit (%):                 60.00",
        "Output token throughput (tok/s):         36.36",
        "Peak output token throughput (tok/s):    42.42",
        "Peak concurrent requests:                3",
        "Total token throughput (tok/s):          127.27",
        "---------------Time to First Token----------------",
        "Mean TTFT (ms):                          60.00",
        "Median TTFT (ms):                        60.00",
        "P50 TTFT (ms):                           60.00",
        "P90 TTFT (ms):                           60.00",
        "P95 TTFT (ms):                           60.00",
        "P99 TTFT (ms):                           60.00",
        "---------Time to First Token from Sending---------",
        "Mean TTFT (ms):                          60.00",
        "Median TTFT (ms):                        60.00",
        "P50 TTFT (ms):                           60.00",
        "P90 TTFT (ms):                           60.00",
        "P95 TTFT (ms):                           60.00",
        "P99 TTFT (ms):                           60.00",
        "-----Time per Output Token (excl. 1st token)------",
        "Mean TPOT (ms):                          20.00",
        "Median TPOT (ms):                        20.00",
        "P50 TPOT (ms):                           20.00",
        "P90 TPOT (ms):                           20.00",
        "P95 TPOT (ms):                           20.00",
        "P99 TPOT (ms):                           20.00",
        "---------------Inter-token Latency----------------",
        "Mean ITL (ms):                           20.00",
        "Median ITL (ms):                         20.00",
        "P50 ITL (ms):                            20.00",
        "P90 ITL (ms):                            20.00",
        "P95 ITL (ms):                            20.00",
        "P99 ITL (ms):                            20.00",
        "----------------End-to-end Latency----------------",
        "Mean E2EL (ms):                          120.00",
        "Median E2EL (ms):                        120.00",
        "P50 E2EL (ms):                           120.00",
        "P90 E2EL (ms):                           120.00",
        "P95 E2EL (ms):                           120.00",
        "P99 E2EL (ms):                           120.00",
        "--------------------Scheduler---------------------",
        "Steps:                                   2",
        "Mean tokens per step:                    21.00",
        "Mean running requests:                   2.00",
        "Preemptions:                             0",
        "Prefix cache hit rate (%):               25.00",
        "Peak KV cache usage (%):                 50.00",
        "==================================================",
    ]


def test_infinite_rate_and_unset_cap_are_not_shown():
    table = format_table(golden_run() | {"request_rate": "inf", "max_concurrency": None})
    assert "configured" not in table
    assert "concurrency:" not in table


def test_null_figures_read_not_available_and_are_explained():
    result = compute_metrics(make_record(Life(token_ms=[40])), MetricsConfig(percentiles=(99.9,)))
    lines = format_table(result).splitlines()
    assert "Mean TPOT (ms):                          n/a" in lines
    assert "P99.9 ITL (ms):                          n/a" in lines
    assert "P99.9 TTFT (ms):                         40.00" in lines
    assert not any("goodput" in line for line in lines)
    assert lines[-1] == "Note: every completed request has a single output token: tpot and itl are null"


def test_swept_values_are_shown_as_given():
    rows = [{"engine.watermark": value, "p99_ttft_ms": 3.14159} for value in (0.01, 0.04, 1e-05)]
    table = [line.split() for line in format_sweep(rows, ["engine.watermark"]).splitlines()]
    assert table == [["watermark", "p99_ttft_ms"], ["0.01", "3.1"], ["0.04", "3.1"], ["1e-05", "3.1"]]


def test_small_rates_are_shown_as_given_and_shares_in_percent():
    lines = format_table(golden_run() | {"request_rate": 0.004, "max_concurrency": 4}).splitlines()
    assert "Request rate configured (RPS):           0.004" in lines
    assert "Requests within all limits (%):          60.00" in lines
    assert "---------Time to First Token from Sending---------" in lines
