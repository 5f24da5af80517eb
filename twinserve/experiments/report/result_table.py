"""The table of a result, in the layout of ``vllm bench serve``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

WIDTH = 50
LABEL_WIDTH = 40

HEADINGS = {
    "ttft": ("TTFT", "Time to First Token"),
    "ttft_from_sending": ("TTFT", "Time to First Token from Sending"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
}

RATES = (
    ("Benchmark duration (s):", "duration"),
    ("Total input tokens:", "total_input_tokens"),
    ("Total generated tokens:", "total_output_tokens"),
    ("Request throughput (req/s):", "request_throughput"),
    ("Request goodput (req/s):", "request_goodput"),
    ("Requests within all limits (%):", "slo_attainment"),
    ("  within TTFT limit (%):", "slo_attainment_ttft"),
    ("  within TPOT limit (%):", "slo_attainment_tpot"),
    ("  within ITL limit (%):", "slo_attainment_itl"),
    ("  within E2EL limit (%):", "slo_attainment_e2el"),
    ("Output token throughput (tok/s):", "output_throughput"),
    ("Peak output token throughput (tok/s):", "max_output_tokens_per_s"),
    ("Peak concurrent requests:", "max_concurrent_requests"),
    ("Total token throughput (tok/s):", "total_token_throughput"),
)

SCHEDULER = (
    ("Steps:", "num_steps"),
    ("Mean tokens per step:", "mean_batch_tokens"),
    ("Mean running requests:", "mean_running"),
    ("Preemptions:", "num_preemptions"),
    ("Prefix cache hit rate (%):", "prefix_cache_hit_rate"),
    ("Peak KV cache usage (%):", "peak_kv_usage"),
)


def format_table(result: Mapping[str, Any]) -> str:
    """The table of one result dict, 50 columns wide; figures that it lacks are left out, null ones read ``n/a``."""
    lines = [
        _heading(" Serving Benchmark Result ", "="),
        *_counts(result),
        *(_rate(label, result[key]) for label, key in RATES if _worth_showing(result, key)),
        *(line for name in HEADINGS for line in _latency(result, name)),
        *_scheduler(result),
        "=" * WIDTH,
        *(f"Note: {warning}" for warning in result.get("warnings", ())),
    ]
    return "\n".join(lines)


def _rate(label: str, value: Any) -> str:
    return _row(label, 100 * value if label.endswith("(%):") and value is not None else value)


def _heading(text: str, fill: str = "-") -> str:
    return text.center(WIDTH, fill)


def _row(label: str, value: object) -> str:
    return f"{label:<{LABEL_WIDTH}} {_format(value):<10}".rstrip()


def _format(value: object) -> str:
    if value is None:
        return "n/a"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _as_given(value: float) -> str:
    """At least two decimals, and all that were written."""
    fixed = f"{value:.2f}"
    return fixed if float(fixed) == value else f"{value:.12g}"


def _counts(result: Mapping[str, Any]) -> Iterator[str]:
    yield _row("Successful requests:", result["completed"])
    yield _row("Failed requests:", result["failed"])
    for reason, count in result.get("failures_by_reason", {}).items():
        yield _row(f"  {reason}:", count)
    window = result.get("measurement_window", {})
    rare = (
        ("Aborted requests:", result.get("aborted")),
        ("Unfinished requests:", result.get("unfinished")),
        ("Excluded as warm-up:", window.get("num_excluded_warmup")),
        ("Excluded as cool-down:", window.get("num_excluded_cooldown")),
        ("Maximum request concurrency:", result.get("max_concurrency")),
    )
    yield from (_row(label, value) for label, value in rare if value)
    rate = result.get("request_rate")
    if rate is not None and math.isfinite(float(rate)):
        yield _row("Request rate configured (RPS):", _as_given(float(rate)))


def _worth_showing(result: Mapping[str, Any], key: str) -> bool:
    """What depends on limits is shown only where one was set."""
    return key in result and (not key.startswith(("request_goodput", "slo_")) or result[key] is not None)


def _latency(result: Mapping[str, Any], name: str) -> Iterator[str]:
    if f"mean_{name}_ms" not in result or (name == "ttft_from_sending" and not result.get("max_concurrency")):
        return  # without a cap on concurrency, requests are sent as they arrive
    short, title = HEADINGS[name]
    yield _heading(title)
    yield _row(f"Mean {short} (ms):", result[f"mean_{name}_ms"])
    yield _row(f"Median {short} (ms):", result[f"median_{name}_ms"])
    for key, value in result.items():
        if key.startswith("p") and key[1].isdigit() and key.endswith(f"_{name}_ms"):
            percentile = key.removesuffix(f"_{name}_ms")
            yield _row(f"{percentile.upper()} {short} (ms):", value)


def _scheduler(result: Mapping[str, Any]) -> Iterator[str]:
    rows = [(label, result[key]) for label, key in SCHEDULER if result.get(key) is not None]
    if rows:
        yield _heading("Scheduler")
    for label, value in rows:
        yield _row(label, 100 * value if label.endswith("(%):") else value)
