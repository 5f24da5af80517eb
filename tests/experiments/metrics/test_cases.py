"""Cases that serving benchmarks are known to get wrong, each with its expected value."""

import json

import pytest

from tests.experiments.helpers.records import Life, make_record, refused
from twinserve.experiments.metrics import MetricsConfig, SloConfig, compute_metrics, request_latencies


def figures(*lives, end_ms=None, steps=(), stats=None, num_blocks=None, **config):
    record = make_record(*lives, steps=steps, stats=stats, end_ms=end_ms)
    return compute_metrics(record, MetricsConfig.model_validate(config), num_blocks=num_blocks)


def evenly(arrival, first, count, gap=10, **more):
    return Life(arrival_ms=arrival, token_ms=[first + gap * i for i in range(count)], **more)


def test_latency_grows_with_the_backlog_even_when_sending_falls_behind():
    # served one by one in 100 ms each, arriving every 50 ms, sent only when the previous one is done
    late = [Life(arrival_ms=50 * i, sent_ms=100 * i, token_ms=[100 * i + 100]) for i in range(20)]
    result = figures(*late)
    assert result["p99_ttft_ms"] == pytest.approx(1050 - 0.19 * 50)
    assert result["median_ttft_ms"] == 575
    assert result["p99_client_queue_time_ms"] == pytest.approx(950 - 0.19 * 50)


def test_ttft_is_not_among_the_gaps():
    result = figures(evenly(0, 5000, 4))
    assert result["itl_count"] == 3
    assert result["p99_itl_ms"] == 10


def test_n_tokens_give_n_minus_one_gaps_and_end_to_end_is_ttft_plus_gaps():
    result = figures(evenly(100, 150, 5), evenly(100, 180, 3, gap=20))
    assert (result["ttft_count"], result["itl_count"]) == (2, 6)
    assert result["mean_e2el_ms"] == (90 + 120) / 2


def test_a_request_without_output_leaves_the_latencies_untouched():
    alone = figures(evenly(0, 50, 3))
    beside = figures(evenly(0, 50, 3), Life(reason="stop", scheduled_ms=0))
    assert beside["failures_by_reason"] == {"no_output_tokens": 1}
    for name in ("ttft", "tpot", "itl", "e2el"):
        assert beside[f"{name}_count"] == alone[f"{name}_count"]
        assert beside[f"mean_{name}_ms"] == alone[f"mean_{name}_ms"]


def test_preemption_is_one_long_gap_and_tokens_count_once():
    result = figures(Life(token_ms=[100, 110, 610, 620], num_preemptions=1))
    assert result["mean_ttft_ms"] == 100
    assert result["mean_e2el_ms"] == 620
    assert (result["itl_count"], result["total_output_tokens"]) == (3, 4)
    assert result["mean_itl_ms"] == pytest.approx(520 / 3)
    assert result["num_preemptions"] == 1


def test_single_token_requests_have_no_tpot():
    result = figures(evenly(0, 50, 1), evenly(0, 80, 2, gap=30))
    assert (result["tpot_count"], result["itl_count"]) == (1, 1)
    assert result["mean_tpot_ms"] == result["p99_tpot_ms"] == result["mean_itl_ms"] == 30


def test_only_single_token_requests_give_null_statistics_and_valid_json():
    result = figures(evenly(0, 50, 1), evenly(0, 60, 1))
    for name in ("tpot", "itl"):
        assert result[f"{name}_count"] == 0
        keys = ("mean", "median", "std", "p50", "p90", "p95", "p99")
        assert [result[f"{key}_{name}_ms"] for key in keys] == [None] * 7
    assert result["mean_ttft_ms"] == 55
    assert result["warnings"] == ["every completed request has a single output token: tpot and itl are null"]
    json.dumps(result, allow_nan=False)


def test_mean_and_percentiles_share_one_population():
    single = [evenly(0, 50, 1) for _ in range(9)]
    result = figures(*single, evenly(0, 50, 11))
    assert result["mean_itl_ms"] == result["p50_itl_ms"] == 10
    assert result["std_itl_ms"] == 0


def test_a_single_stall_shows_in_the_itl_tail_and_hides_in_tpot():
    times = [10 * i for i in range(51)] + [500 + 400 + 10 * i for i in range(50)]
    result = figures(*[Life(token_ms=times) for _ in range(3)], percentiles=[50, 99, 99.5])
    assert result["p99.5_itl_ms"] == 400
    assert result["p50_itl_ms"] == 10
    assert result["p99_tpot_ms"] == pytest.approx(13.9)
    assert result["mean_itl_ms"] == pytest.approx(13.9)


def test_failures_are_counted_apart_and_enter_no_latency_or_rate():
    good = [evenly(0, 50, 3)]
    grown = evenly(0, 500, 40, reason="kv_capacity", end_ms=70)
    cancelled = evenly(0, 20, 5, reason="abort")
    alone = figures(*good, end_ms=70)
    mixed = figures(*good, refused(), refused(5), grown, cancelled)
    assert (mixed["completed"], mixed["failed"], mixed["aborted"], mixed["unfinished"]) == (1, 3, 1, 0)
    assert mixed["failures_by_reason"] == {"kv_capacity": 1, "prompt_exceeds_kv_cache": 2}
    for name in ("mean_ttft_ms", "p99_itl_ms", "total_output_tokens", "total_input_tokens", "output_throughput"):
        assert mixed[name] == alone[name]


def test_mean_tpot_weighs_requests_and_mean_itl_weighs_tokens():
    unequal = figures(evenly(0, 10, 2, gap=100), evenly(0, 10, 101, gap=10))
    assert unequal["mean_tpot_ms"] == 55
    assert unequal["mean_itl_ms"] == pytest.approx(1100 / 101)
    assert 1000 / unequal["output_throughput"] != pytest.approx(unequal["mean_tpot_ms"])
    equal = figures(evenly(0, 10, 6, gap=100), evenly(0, 10, 6, gap=10))
    assert equal["mean_tpot_ms"] == equal["mean_itl_ms"] == 55


def test_tokens_delivered_together_are_one_gap_and_zeros():
    result = figures(Life(token_ms=[100, 130, 130, 130]))
    assert result["itl_count"] == 3
    assert (result["mean_itl_ms"], result["p50_itl_ms"], result["mean_tpot_ms"]) == (10, 0, 10)


def test_token_counts_are_those_generated_not_those_allowed():
    result = figures(evenly(0, 50, 5, reason="stop", max_tokens=500))
    assert result["total_output_tokens"] == 5
    assert result["mean_tpot_ms"] == 10


def test_throughput_is_completed_over_duration():
    # one at a time, 5 s each: whatever windows one might draw, 2 requests in 10 s are 0.2 a second
    result = figures(*[Life(sent_ms=5000 * i, token_ms=[5000 * (i + 1)]) for i in range(2)])
    assert (result["duration"], result["request_throughput"], result["output_throughput"]) == (10.0, 0.2, 0.2)
    assert result["total_token_throughput"] == 2.2


def test_no_gaps_recorded_is_null_with_a_warning_not_zero():
    record = make_record(evenly(0, 50, 3))
    record.tokens.update(request_id=[], time_ns=[])
    result = compute_metrics(record, MetricsConfig())
    assert (result["itl_count"], result["mean_itl_ms"]) == (0, None)
    assert result["warnings"] == ["no token times were recorded: itl is null"]
    assert result["mean_tpot_ms"] == 10


def test_goodput_needs_every_limit_and_single_tokens_meet_any_tpot():
    lives = (evenly(0, 50, 3), evenly(0, 500, 3), evenly(0, 50, 3, gap=90), evenly(0, 60, 1), refused())
    assert figures(*lives)["request_goodput"] is None
    slo = SloConfig(ttft_ms=100, tpot_ms=20, e2el_ms=1000)
    result = figures(*lives, slo=slo)
    assert result["request_goodput"] == pytest.approx(2 / 0.52)
    assert result["slo"] == {"ttft_ms": 100, "tpot_ms": 20, "e2el_ms": 1000}


def test_departures_precede_arrivals_in_the_peak_concurrency():
    chain = [Life(sent_ms=100 * i, token_ms=[100 * (i + 1)]) for i in range(5)]
    assert figures(*chain)["max_concurrent_requests"] == 1
    assert figures(*chain, Life(sent_ms=150, token_ms=[450]), refused(160))["max_concurrent_requests"] == 2


def test_peak_output_rate_is_of_the_best_part_as_long_as_a_second():
    # 2.65 s are two parts of 1.325 s: six tokens within (0.675, 2.0]
    result = figures(Life(arrival_ms=700, token_ms=[800, 900, 1600, 1699, 1700, 2000, 2650]))
    assert result["max_output_tokens_per_s"] == pytest.approx(6 / 1.325)


def test_peak_output_rate_of_less_than_a_second_is_the_average():
    result = figures(evenly(0, 10, 8), evenly(0, 10, 8))
    assert result["max_output_tokens_per_s"] == result["output_throughput"] == pytest.approx(16 / 0.08)


def test_steady_tokens_have_their_rate_as_peak():
    assert figures(evenly(0, 10, 500))["max_output_tokens_per_s"] == 100


def test_ttft_from_sending_leaves_out_the_wait_for_a_place():
    held = [Life(arrival_ms=0, sent_ms=100 * i, token_ms=[100 * i + 10, 100 * i + 30]) for i in range(20)]
    result = figures(*held)
    assert result["p99_ttft_from_sending_ms"] == result["p50_ttft_from_sending_ms"] == 10
    assert result["mean_e2el_from_sending_ms"] == 30
    assert result["mean_ttft_ms"] == 960


def test_shares_within_limits_count_all_that_were_asked_and_limits_are_inclusive():
    lives = (evenly(0, 50, 3), evenly(0, 51, 3), evenly(0, 50, 3, gap=11), evenly(0, 40, 1), refused())
    result = figures(*lives, slo={"ttft_ms": 50, "tpot_ms": 10, "itl_ms": 10, "e2el_ms": 71})
    names = ("slo_attainment", *(f"slo_attainment_{name}" for name in ("ttft", "tpot", "itl", "e2el")))
    assert [result[name] for name in names] == [0.4, 0.6, 0.6, 0.6, 0.6]
    assert result["request_goodput"] * result["duration"] / result["num_prompts"] == pytest.approx(0.4)
    assert [figures(*lives)[name] for name in names] == [None] * 5


def test_itl_limit_is_on_the_longest_gap():
    stalled = Life(token_ms=[10, 20, 120, 130])
    assert figures(stalled, slo={"tpot_ms": 50})["slo_attainment"] == 1
    assert figures(stalled, slo={"itl_ms": 99.9})["slo_attainment"] == 0
    assert figures(stalled, slo={"itl_ms": 100})["slo_attainment"] == 1


def test_gaps_of_more_than_255_requests_stay_with_their_owner():
    found = request_latencies(make_record(*[Life(token_ms=[i, 2 * i + 1]) for i in range(1000)]))
    assert found.itl_owner.tolist() == list(range(1000))
    assert found.itl.tolist() == [(i + 1) * 10**6 for i in range(1000)]


def test_duration_is_from_the_runs_start_not_from_the_first_sending():
    assert figures(evenly(500, 600, 5))["duration"] == 0.64


def test_queue_time_counts_from_the_scheduled_arrival():
    result = figures(Life(arrival_ms=100, sent_ms=130, scheduled_ms=170, token_ms=[250]))
    assert (result["mean_client_queue_time_ms"], result["mean_queue_time_ms"], result["mean_ttft_ms"]) == (30, 70, 150)


def test_standard_deviation_is_of_the_population():
    assert figures(evenly(0, 10, 1), evenly(0, 30, 1))["std_ttft_ms"] == 10


def test_an_empty_run_is_all_null():
    result = figures()
    assert (result["completed"], result["duration"], result["request_throughput"]) == (0, 0.0, None)
    assert (result["mean_ttft_ms"], result["max_output_tokens_per_s"], result["mean_batch_tokens"]) == (None,) * 3


def test_requests_never_sent_are_unfinished():
    record = make_record(evenly(0, 50, 3), Life(token_ms=[60], reason=None), end_ms=200)
    result = compute_metrics(record, MetricsConfig(), num_prompts=5)
    assert (result["completed"], result["unfinished"], result["duration"]) == (1, 4, 0.2)


def test_engine_figures_cover_every_step():
    steps = [
        {"num_tokens": 30, "num_rows": 2, "num_running": 2, "num_waiting": 4, "num_free_blocks": 7},
        {"num_tokens": 10, "num_rows": 4, "num_running": 4, "num_waiting": 0, "num_free_blocks": 2},
    ]
    result = figures(evenly(0, 10, 3), refused(), steps=steps, num_blocks=10)
    assert (result["num_steps"], result["mean_batch_tokens"], result["mean_batch_size"]) == (2, 20, 3)
    assert (result["mean_running"], result["mean_waiting"]) == (3, 2)
    assert (result["min_free_blocks"], result["peak_kv_usage"]) == (2, 0.8)


def test_prefix_cache_hits_are_those_the_engine_counted():
    stats = {"prefix_cache_queries": 40, "prefix_cache_hits": 16, "prefix_cache_hit_blocks": 1, "num_steps": 3}
    result = figures(evenly(0, 10, 3), stats=stats)
    assert (result["prefix_cache_hit_rate"], result["prefix_cache_hit_blocks"]) == (0.4, 1)
    assert figures(evenly(0, 10, 3))["prefix_cache_hit_rate"] is None


def test_hits_of_resumed_requests_are_in_a_rate_of_their_own():
    stats = {"prefix_cache_queries": 80, "prefix_cache_preempted_queries": 49, "prefix_cache_preempted_hits": 32}
    result = figures(evenly(0, 10, 3), stats=stats)
    assert (result["prefix_cache_hit_rate"], result["prefix_cache_hit_rate_with_resumes"]) == (0, 32 / 129)
