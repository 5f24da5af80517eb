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


def meets_limits(latencies: Latencies, slo: SloConfig) -> dict[str, Bools]:
    """Limit (``ttft``, ...) -> which completed requests meet it, for the limits that are given; each is inclusive.

    ``itl`` is the longest gap of a request. As in vLLM, TPOT (and so ITL) is 0 for a request of one token.
    """
    tpot = np.zeros(len(latencies.rows))
    tpot[latencies.output_len > 1] = latencies.tpot
    longest_gap = np.zeros(len(latencies.rows), dtype=np.int64)
    np.maximum.at(longest_gap, latencies.itl_owner, latencies.itl)
    values = {"ttft": latencies.ttft, "tpot": tpot, "itl": longest_gap, "e2el": latencies.e2el}
    limits = {name: getattr(slo, f"{name}_ms") for name in values}
    return {name: values[name] <= limit * NS_PER_MS for name, limit in limits.items() if limit is not None}


def max_output_tokens_per_s(record: RunRecord, start_ns: int, duration_ns: int) -> float | None:
    """The highest rate of delivered tokens over any part of the measured duration as long as a second.

    That length is ``duration / floor(duration)``, the whole duration when it is below a second: so the parts that
    the duration consists of are among those looked at, and the peak is never below the average. None without tokens
    or duration.
    """
    times = np.asarray(record.tokens["time_ns"], dtype=np.int64) - start_ns
    times = np.sort(times[(times >= 0) & (times <= duration_ns)])
    if len(times) == 0 or duration_ns <= 0:
        return None
    num_parts = max(duration_ns // NS_PER_S, 1)
    length = -(-duration_ns // num_parts)
    times = np.maximum(times, 1)  # what is delivered at the start belongs to the first part
    most = int((np.arange(1, len(times) + 1) - np.searchsorted(times, times - length, side="right")).max())
    return per_second(most * num_parts, duration_ns)


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
