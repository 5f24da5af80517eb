"""The measurement window: which requests count after warm-up and before cool-down, by scheduled arrival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twinserve.experiments.metrics.metrics_config import MetricsConfig
from twinserve.run_core.record import Columns
from twinserve.sched_core.plan import Bools

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """``measured`` has one entry per request; ``start_ns`` is where the measured duration begins.

    That is the run's start, or, when warm-up requests were excluded, the sending of the first measured request. A
    request excluded by both rules counts as warm-up.
    """

    measured: Bools
    start_ns: int
    num_warmup: int
    num_cooldown: int


def measurement_window(requests: Columns, config: MetricsConfig) -> Window:
    """The requests that ``config`` measures; ties in arrival go by order of sending."""
    arrival = np.asarray(requests["arrival_ns"], dtype=np.int64)
    rank = np.empty(len(arrival), dtype=np.int64)
    rank[np.argsort(arrival, kind="stable")] = np.arange(len(arrival))
    warmup = (rank < config.warmup_requests) | (arrival < config.warmup_time_s * NS_PER_S)
    cooldown = ~warmup & _in_cooldown(arrival, config.cooldown_time_s)
    measured = ~(warmup | cooldown)
    sent = np.asarray(requests["sent_ns"], dtype=np.int64)[measured]
    return Window(
        measured=measured,
        start_ns=int(sent.min()) if warmup.any() and len(sent) else 0,
        num_warmup=int(warmup.sum()),
        num_cooldown=int(cooldown.sum()),
    )


def _in_cooldown(arrival: np.ndarray[tuple[int], np.dtype[np.int64]], cooldown_time_s: float) -> Bools:
    if len(arrival) == 0 or cooldown_time_s == 0:
        return np.zeros(len(arrival), dtype=np.bool_)
    in_cooldown: Bools = arrival > arrival.max() - cooldown_time_s * NS_PER_S
    return in_cooldown
