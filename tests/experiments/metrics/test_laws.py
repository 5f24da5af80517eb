"""Laws that hold for the figures of any run."""

import json

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.experiments.helpers.records import Life, make_record, refused
from twinserve.experiments.metrics import MetricsConfig, compute_metrics, request_latencies
from twinserve.experiments.metrics.window import measurement_window

REASONS = st.sampled_from(["length", "stop", "abort", "kv_capacity", None])


@st.composite
def lives(draw):
    if draw(st.integers(0, 9)) == 0:
        return refused(draw(st.integers(0, 500)))
    arrival = draw(st.integers(0, 500) | st.integers(0, 5000))
    waits = draw(st.lists(st.integers(0, 40), min_size=2, max_size=12))
    sent, scheduled, *tokens = (int(t) for t in arrival + np.cumsum(waits))
    return Life(
        arrival_ms=arrival,
        sent_ms=sent,
        scheduled_ms=scheduled,
        token_ms=tokens,
        reason=draw(REASONS),
        end_ms=tokens[-1] if tokens else scheduled,
    )


records = st.lists(lives(), max_size=12).map(lambda rows: make_record(*rows))
configs = st.builds(
    MetricsConfig,
    warmup_requests=st.integers(0, 4),
    warmup_time_s=st.sampled_from([0.0, 0.1, 0.3]),
    cooldown_time_s=st.sampled_from([0.0, 0.1]),
)


def measured(record, config, **more):
    """Figures, where warm-up and cool-down leave a request."""
    window = measurement_window(record.requests, config)
    assume(window.measured.any() or not len(window.measured))
    return compute_metrics(record, config, **more)


@given(records, configs)
def test_peak_output_rate_is_never_below_the_average(record, config):
    result = measured(record, config)
    if result["total_output_tokens"] and result["duration"]:
        assert result["max_output_tokens_per_s"] >= result["output_throughput"]


@given(records)
def test_latency_from_sending_and_the_wait_to_be_sent_are_the_latency(record):
    found = request_latencies(record)
    assert (found.ttft_from_sending + found.client_queue_time == found.ttft).all()
    assert (found.e2el_from_sending + found.client_queue_time == found.e2el).all()


@given(records)
def test_end_to_end_latency_is_ttft_plus_the_gaps(record):
    found = request_latencies(record)
    gaps = np.bincount(found.itl_owner, weights=found.itl, minlength=len(found.rows))
    assert (found.e2el == found.ttft + gaps).all()


@given(records)
def test_tpot_times_the_gaps_of_a_request_is_their_sum(record):
    found = request_latencies(record)
    gaps = np.bincount(found.itl_owner, weights=found.itl, minlength=len(found.rows))
    several = found.output_len > 1
    np.testing.assert_allclose(found.tpot * (found.output_len[several] - 1), gaps[several], rtol=1e-12)


@given(records)
def test_n_tokens_have_n_minus_one_gaps(record):
    found = request_latencies(record)
    counts = np.bincount(found.itl_owner, minlength=len(found.rows))
    assert (counts == np.maximum(found.output_len - 1, 0)).all()


@given(records, configs)
def test_percentiles_ascend_and_the_median_is_p50(record, config):
    result = measured(record, config)
    for name in ("ttft", "tpot", "itl", "e2el", "queue_time", "client_queue_time"):
        values = [result[f"p{p}_{name}_ms"] for p in (50, 90, 95, 99)]
        if result[f"{name}_count"] == 0:
            assert values == [None] * 4
        else:
            assert values == sorted(values)
            assert values[0] == result[f"median_{name}_ms"]


@given(records, configs, st.integers(0, 5))
def test_every_prompt_is_counted_once(record, config, num_unsent):
    total = len(record.requests["request_id"]) + num_unsent
    result = measured(record, config, num_prompts=total)
    window = result["measurement_window"]
    excluded = window["num_excluded_warmup"] + window["num_excluded_cooldown"]
    counted = sum(result[name] for name in ("completed", "failed", "aborted", "unfinished"))
    assert counted + excluded == result["num_prompts"] == total
    assert sum(result["failures_by_reason"].values()) == result["failed"]


@given(records, configs)
def test_result_is_strict_json(record, config):
    result = measured(record, config)
    assert json.loads(json.dumps(result, allow_nan=False)) == result


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_order_of_token_rows_of_other_requests_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    rows = [Life(arrival_ms=i, token_ms=sorted(rng.integers(i, 90, 5).tolist())) for i in range(6)]
    together, apart = make_record(*rows), [make_record(row) for row in rows]
    pooled = np.concatenate([request_latencies(record).itl for record in apart])
    assert sorted(request_latencies(together).itl.tolist()) == sorted(pooled.tolist())


@given(records)
def test_peak_concurrency_is_the_highest_count_at_any_sending(record):
    requests = record.requests
    spans = [
        (sent, record.end_ns if end is None else end)
        for sent, end, refusal in zip(requests["sent_ns"], requests["finish_ns"], requests["refusal"], strict=True)
        if refusal is None
    ]
    counts = [sum(start <= now < end for start, end in spans) for now, _ in spans]
    peak = compute_metrics(record, MetricsConfig())["max_concurrent_requests"]
    assert peak >= max(counts, default=0)
    assert peak <= len(spans)
