"""The figures that a validation compares, under the names of ``result.json``."""

from __future__ import annotations

from twinserve.experiments.metrics import request_latencies
from twinserve.experiments.metrics.latency import Latencies
from twinserve.experiments.metrics.statistics import latency_statistics
from twinserve.experiments.metrics.throughput import measured_end_ns, per_second
from twinserve.experiments.metrics.window import NS_PER_S, Window
from twinserve.run_core.record import RunRecord

LATENCIES = ("ttft", "tpot", "itl", "e2el")
PERCENTILES = (50, 90, 99)
RATES = ("duration", "request_throughput", "output_throughput", "total_token_throughput")
FIGURES = (
    *RATES,
    *(f"{statistic}_{name}_ms" for name in LATENCIES for statistic in ("mean", *(f"p{p}" for p in PERCENTILES))),
)

Figures = dict[str, float | None]


def figures(record: RunRecord, window: Window) -> Figures:
    """FIGURES of the measured requests of ``window``; None where there is no sample."""
    latencies = request_latencies(record, window.measured)
    found = _rates(record, latencies, window)
    for name in LATENCIES:
        found |= latency_statistics(name, getattr(latencies, name), PERCENTILES)
    return {name: found[name] for name in FIGURES}


def error_percent(real: float | None, other: float | None) -> float | None:
    """``other`` against ``real``; None where either is unknown, or the real one is 0."""
    return None if real is None or other is None or real == 0 else (other / real - 1) * 100


def _rates(record: RunRecord, latencies: Latencies, window: Window) -> Figures:
    duration_ns = max(measured_end_ns(record, window.measured) - window.start_ns, 0)
    num_input = sum(record.requests["prompt_len"][row] for row in latencies.rows.tolist())
    num_output = int(latencies.output_len.sum())
    return {
        "duration": duration_ns / NS_PER_S,
        "request_throughput": per_second(len(latencies.rows), duration_ns),
        "output_throughput": per_second(num_output, duration_ns),
        "total_token_throughput": per_second(num_input + num_output, duration_ns),
    }
