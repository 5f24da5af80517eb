"""Computes the figures of one run, under the names of ``vllm bench serve``."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    meets_limits,
    per_second,
)
from twinserve.experiments.metrics.window import (
    NS_PER_S,
    RULES,
    Window,
    measurement_window,
    refuse_empty_window,
)
from twinserve.run_core.record import RunRecord

SCHEMA_VERSION = 1

LATENCIES = (
    "ttft",
    "tpot",
    "itl",
    "e2el",
    "queue_time",
    "client_queue_time",
    "ttft_from_sending",
    "e2el_from_sending",
)
LIMITS = ("ttft", "tpot", "itl", "e2el")


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
    to ``num_prompts``, the size of the workload: requests that were never sent are unfinished. Peak concurrency, steps,
    preemptions and cache figures cover the whole run; ``num_blocks`` is the size of the KV pool.

    Raises:
        ConfigError: warm-up and cool-down exclude every request.
    """
    window = measurement_window(record.requests, config)
    refuse_empty_window(window, config)
    ends = outcomes(record.requests)
    latencies = request_latencies(record, window.measured)
    num_sent = len(window.measured)
    total = num_sent if num_prompts is None else num_prompts
    num_asked = int(window.measured.sum()) + total - num_sent
    duration_ns = max(measured_end_ns(record, window.measured) - window.start_ns, 0)
    return {
        "schema_version": SCHEMA_VERSION,
        "num_prompts": total,
        "duration": duration_ns / NS_PER_S,
        **_counts(ends, window, total - num_sent),
        **_throughput(record, latencies, window.start_ns, duration_ns),
        **_service_level(latencies, num_asked, duration_ns, config),
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


def _throughput(record: RunRecord, latencies: Latencies, start_ns: int, duration_ns: int) -> dict[str, Any]:
    prompt_len = record.requests["prompt_len"]
    num_input = int(sum(prompt_len[row] for row in latencies.rows.tolist()))
    num_output = int(latencies.output_len.sum())
    return {
        "total_input_tokens": num_input,
        "total_output_tokens": num_output,
        "request_throughput": per_second(len(latencies.rows), duration_ns),
        "output_throughput": per_second(num_output, duration_ns),
        "total_token_throughput": per_second(num_input + num_output, duration_ns),
        "max_output_tokens_per_s": max_output_tokens_per_s(record, start_ns, duration_ns),
        "max_concurrent_requests": max_concurrent_requests(record),
    }


def _service_level(latencies: Latencies, num_asked: int, duration_ns: int, config: MetricsConfig) -> dict[str, Any]:
    """Goodput, and the share of the ``num_asked`` measured requests that meet all limits, and each; None without."""
    names = ("slo_attainment", *(f"slo_attainment_{name}" for name in LIMITS))
    figures: dict[str, Any] = {"request_goodput": None, **dict.fromkeys(names)}
    met = {} if config.slo is None else meets_limits(latencies, config.slo)
    if config.slo is None or ("itl" in met and len(latencies.itl) == 0 < len(latencies.tpot)):
        return figures  # no limits, or one on gaps that were not recorded
    good = np.logical_and.reduce([*met.values(), np.ones(len(latencies.rows), dtype=np.bool_)])
    figures["request_goodput"] = per_second(int(good.sum()), duration_ns)
    shares = {"slo_attainment": good, **{f"slo_attainment_{name}": within for name, within in met.items()}}
    return figures | {name: int(within.sum()) / num_asked if num_asked else None for name, within in shares.items()}


def _latency(latencies: Latencies, config: MetricsConfig) -> dict[str, Any]:
    figures: dict[str, Any] = {"percentile_method": PERCENTILE_METHOD}
    for name in LATENCIES:
        figures |= latency_statistics(name, getattr(latencies, name), config.percentiles)
    figures["slo"] = None if config.slo is None else config.slo.model_dump(exclude_none=True)
    figures["confidence_intervals"] = confidence_intervals(latencies, config)
    return figures


def _describe(window: Window, config: MetricsConfig) -> dict[str, Any]:
    return {
        "rule": "by position and by time from the first sending",
        **{name: getattr(config, name) for name in RULES},
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
