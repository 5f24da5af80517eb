"""Computes the figures of one run, under the names of ``vllm bench serve``."""

from __future__ import annotations

from typing import Any

from twinserve.experiments.metrics.engine import engine_statistics
from twinserve.experiments.metrics.intervals import confidence_intervals
from twinserve.experiments.metrics.latency import Latencies, request_latencies
from twinserve.experiments.metrics.metrics_config import MetricsConfig
from twinserve.experiments.metrics.outcomes import Outcomes, outcomes
from twinserve.experiments.metrics.statistics import PERCENTILE_METHOD, latency_statistics
from twinserve.experiments.metrics.throughput import (
    max_concurrent_requests,
    max_output_tokens_per_s,
    measured_end_ns,
    num_good_requests,
    per_second,
)
from twinserve.experiments.metrics.window import NS_PER_S, Window, measurement_window
from twinserve.run_core.record import RunRecord

SCHEMA_VERSION = 1

LATENCIES = ("ttft", "tpot", "itl", "e2el", "queue_time", "client_queue_time")


def compute_metrics(
    record: RunRecord,
    config: MetricsConfig,
    *,
    num_prompts: int | None = None,
    num_blocks: int | None = None,
) -> dict[str, Any]:
    """All figures of a run; plain Python values, None where a statistic has no sample, never NaN.

    Counts, rates and latencies cover the measured requests (see ``MetricsConfig``); the latter two only those that
    completed. ``duration`` (s) runs from the run's start, or from the first measured sending after a warm-up, to the
    end of the last measured request. ``completed + failed + aborted + unfinished`` and the excluded requests add up
    to ``num_prompts``, the size of the workload: requests that were never sent are unfinished. Peaks, steps,
    preemptions and cache figures cover the whole run; ``num_blocks`` is the size of the KV pool.
    """
    window = measurement_window(record.requests, config)
    ends = outcomes(record.requests)
    latencies = request_latencies(record, window.measured)
    num_sent = len(window.measured)
    total = num_sent if num_prompts is None else num_prompts
    duration_ns = max(measured_end_ns(record, window.measured) - window.start_ns, 0)
    return {
        "schema_version": SCHEMA_VERSION,
        "num_prompts": total,
        "duration": duration_ns / NS_PER_S,
        **_counts(ends, window, total - num_sent),
        **_throughput(record, latencies, duration_ns, config),
        **_latency(latencies, config),
        **engine_statistics(record, num_blocks),
        "measurement_window": _describe(window, config),
        "warnings": _warnings(latencies),
    }


def _counts(ends: Outcomes, window: Window, num_unsent: int) -> dict[str, Any]:
    measured = window.measured
    return {
        "completed": int((ends.completed & measured).sum()),
        "failed": int((ends.failed & measured).sum()),
        "failures_by_reason": ends.failures_by_reason(measured),
        "aborted": int((ends.aborted & measured).sum()),
        "unfinished": int((ends.unfinished & measured).sum()) + num_unsent,
    }


def _throughput(record: RunRecord, latencies: Latencies, duration_ns: int, config: MetricsConfig) -> dict[str, Any]:
    prompt_len = record.requests["prompt_len"]
    num_input = int(sum(prompt_len[row] for row in latencies.rows.tolist()))
    num_output = int(latencies.output_len.sum())
    good = None if config.slo is None else num_good_requests(latencies, config.slo)
    return {
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": per_second(len(latencies.rows), duration_ns),
        "request_goodput": None if good is None else per_second(good, duration_ns),
        "output_throughput": per_second(num_output, duration_ns),
        "total_token_throughput": per_second(num_input + num_output, duration_ns),
        "max_output_tokens_per_s": max_output_tokens_per_s(record),
        "max_concurrent_requests": max_concurrent_requests(record),
    }


def _latency(latencies: Latencies, config: MetricsConfig) -> dict[str, Any]:
    figures: dict[str, Any] = {"percentile_method": PERCENTILE_METHOD}
    for name in LATENCIES:
        figures |= latency_statistics(name, getattr(latencies, name), config.percentiles)
    figures["slo"] = None if config.slo is None else config.slo.model_dump(exclude_none=True)
    figures["confidence_intervals"] = confidence_intervals(latencies, config)
    return figures


def _describe(window: Window, config: MetricsConfig) -> dict[str, Any]:
    return {
        "rule": "by scheduled arrival",
        "warmup_requests": config.warmup_requests,
        "warmup_time_s": config.warmup_time_s,
        "cooldown_time_s": config.cooldown_time_s,
        "num_measured": int(window.measured.sum()),
        "num_excluded_warmup": window.num_warmup,
        "num_excluded_cooldown": window.num_cooldown,
        "start_s": window.start_ns / NS_PER_S,
    }


def _warnings(latencies: Latencies) -> list[str]:
    """Warnings for a reader of the figures."""
    if len(latencies.rows) == 0:
        return ["no measured request completed: all latencies are null"]
    if len(latencies.tpot) == 0:
        return ["every completed request has a single output token: tpot and itl are null"]
    if len(latencies.itl) == 0:
        return ["no token times were recorded: itl is null"]
    return []
