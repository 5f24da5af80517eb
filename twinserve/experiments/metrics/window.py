"""The measurement window: which requests count after warm-up and before cool-down, by position or time of sending."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.metrics.metrics_config import MetricsConfig
from twinserve.run_core.record import Columns
from twinserve.sched_core.plan import Bools, Ints

NS_PER_S = 1_000_000_000
RULES = (
    "warmup_requests",
    "warmup_share",
    "warmup_time_s",
    "cooldown_requests",
    "cooldown_share",
    "cooldown_time_s",
)


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
    arrival, sent = (np.asarray(requests[name], dtype=np.int64) for name in ("arrival_ns", "sent_ns"))
    first, last = _positions(config, len(arrival))
    rank = np.empty(len(arrival), dtype=np.int64)
    rank[np.argsort(arrival, kind="stable")] = np.arange(len(arrival))
    warmup = (rank < first) | _early(sent, config.warmup_time_s)
    cooldown = ~warmup & ((rank >= last) | _late(sent, config.cooldown_time_s))
    measured = ~(warmup | cooldown)
    return Window(
        measured=measured,
        start_ns=int(sent[measured].min()) if warmup.any() and measured.any() else 0,
        num_warmup=int(warmup.sum()),
        num_cooldown=int(cooldown.sum()),
    )


def refuse_empty_positions(config: MetricsConfig, num_requests: int) -> None:
    """Known before a run: whether warm-up and cool-down by position leave a request.

    Raises:
        ConfigError: they do not.
    """
    first, last = _positions(config, num_requests)
    if num_requests and first >= last:
        raise _nothing_left(config, f"all {num_requests} requests")


def refuse_empty_window(window: Window, config: MetricsConfig) -> None:
    """
    Raises:
        ConfigError: there were requests, and warm-up and cool-down excluded all of them.
    """
    if len(window.measured) and not window.measured.any():
        raise _nothing_left(config, f"all {len(window.measured)} requests that were sent")


def _nothing_left(config: MetricsConfig, excluded: str) -> ConfigError:
    given = ", ".join(f"{name}={getattr(config, name):g}" for name in RULES if getattr(config, name))
    return ConfigError(f"warm-up and cool-down exclude {excluded} ({given}); lower them or send more", key="metrics")


def _positions(config: MetricsConfig, num_requests: int) -> tuple[int, int]:
    """The first measured position, and the one after the last."""
    first = max(config.warmup_requests, ceil(config.warmup_share * num_requests))
    excluded = max(config.cooldown_requests, ceil(config.cooldown_share * num_requests))
    return first, num_requests - excluded


def _early(sent: Ints, warmup_time_s: float) -> Bools:
    if len(sent) == 0 or warmup_time_s == 0:
        return np.zeros(len(sent), dtype=np.bool_)
    early: Bools = sent < sent.min() + warmup_time_s * NS_PER_S
    return early


def _late(sent: Ints, cooldown_time_s: float) -> Bools:
    if len(sent) == 0 or cooldown_time_s == 0:
        return np.zeros(len(sent), dtype=np.bool_)
    late: Bools = sent > sent.max() - cooldown_time_s * NS_PER_S
    return late
