"""Throughput, goodput and peaks over the measured duration."""

from __future__ import annotations

import numpy as np

from twinserve.experiments.metrics.latency import Latencies
from twinserve.experiments.metrics.metrics_config import SloConfig
from twinserve.experiments.metrics.statistics import NS_PER_MS
from twinserve.experiments.metrics.window import NS_PER_S
from twinserve.run_core.record import RunRecord
from twinserve.sched_core.plan import Bools, Ints


def measured_end_ns(record: RunRecord, measured: Bools) -> int:
    """When the last measured request ended; the run's end if one of them never did or none is measured."""
    finish = record.requests["finish_ns"]
    times = [finish[row] for row in np.flatnonzero(measured).tolist()]
    return record.end_ns if not times or None in times else int(max(times))


def per_second(count: int, duration_ns: int) -> float | None:
    """``count`` over the duration; None when no time passed."""
    return count * NS_PER_S / duration_ns if duration_ns > 0 else None


def num_good_requests(latencies: Latencies, slo: SloConfig) -> int:
    """Completed requests that meet every given limit; as in vLLM, TPOT is 0 for a request of one token."""
    tpot = np.zeros(len(latencies.rows))
    tpot[latencies.output_len > 1] = latencies.tpot
    good = np.ones(len(latencies.rows), dtype=np.bool_)
    limits = ((latencies.ttft, slo.ttft_ms), (tpot, slo.tpot_ms), (latencies.e2el, slo.e2el_ms))
    for values, limit_ms in limits:
        if limit_ms is not None:
            good &= values <= limit_ms * NS_PER_MS
    return int(good.sum())


def max_output_tokens_per_s(record: RunRecord) -> float | None:
    """Most tokens delivered in one second, in whole seconds from the first sending; None without tokens."""
    times = np.asarray(record.tokens["time_ns"], dtype=np.int64)
    if len(times) == 0:
        return None
    first_sent = int(np.min(np.asarray(record.requests["sent_ns"], dtype=np.int64)))
    return float(np.bincount((times - first_sent) // NS_PER_S).max())


def max_concurrent_requests(record: RunRecord) -> int:
    """Most accepted requests between sending and end at once; of one instant, departures come before arrivals."""
    requests = record.requests
    spans = zip(requests["sent_ns"], requests["finish_ns"], requests["refusal"], strict=True)
    inside = [(sent, record.end_ns if end is None else end) for sent, end, refusal in spans if refusal is None]
    if not inside:
        return 0
    sent, end = np.array(inside, dtype=np.int64).T
    return int(_running_count(sent, end).max())


def _running_count(sent: Ints, end: Ints) -> Ints:
    times = np.concatenate((sent, end))
    change = np.repeat(np.array([1, -1], dtype=np.int64), [len(sent), len(end)])
    return np.cumsum(change[np.lexsort((change, times))])
