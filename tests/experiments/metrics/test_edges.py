"""Limits, many requests, and where the duration begins."""

from dataclasses import replace

import numpy as np
import pytest

from tests.experiments.helpers.records import Life, make_record
from twinserve.experiments.metrics import MetricsConfig, compute_metrics
from twinserve.experiments.metrics.intervals import bootstrap_intervals
from twinserve.experiments.metrics.latency import request_latencies


@pytest.mark.parametrize(("limits", "good"), [({"ttft_ms": 50}, 1), ({"ttft_ms": 49}, 0), ({"e2el_ms": 70}, 1)])
def test_a_latency_at_its_limit_is_good(limits, good):
    record = make_record(Life(token_ms=[50, 60, 70]), end_ms=1000)
    result = compute_metrics(record, MetricsConfig.model_validate({"slo": limits}))
    assert result["request_goodput"] * result["duration"] == pytest.approx(good)


@pytest.mark.parametrize("count", [255, 256, 257, 700])
def test_gaps_stay_with_their_request_however_many_there_are(count):
    record = make_record(*(Life(token_ms=[1, 3 + i % 7]) for i in range(count)))
    delivered = np.argsort(np.asarray(record.tokens["time_ns"]), kind="stable")
    record = replace(record, tokens={name: np.asarray(column)[delivered] for name, column in record.tokens.items()})
    latencies = request_latencies(record)
    gap_of = dict(zip(latencies.itl_owner.tolist(), (latencies.itl // 1_000_000).tolist(), strict=True))
    assert gap_of == {i: 2 + i % 7 for i in range(count)}


def test_the_duration_begins_with_the_run_not_with_the_first_sending():
    record = make_record(Life(arrival_ms=400, token_ms=[500, 1000]))
    assert compute_metrics(record, MetricsConfig())["duration"] == 1.0


def test_requests_without_gaps_do_not_thin_out_the_bootstrap():
    gaps, owners = np.arange(40) ** 2 * 1_000_000, np.arange(40) * 25
    arguments = ((50,), 200, 0.9)
    apart = bootstrap_intervals(gaps, owners, *arguments, np.random.default_rng(0))
    together = bootstrap_intervals(gaps, np.arange(40), *arguments, np.random.default_rng(0))
    assert apart == together
