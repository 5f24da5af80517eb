"""Confidence intervals of percentiles.

A percentile of independent requests has an exact interval from order statistics, whatever the distribution. The gaps
within one request are correlated, so pooled ITL is bootstrapped by drawing whole requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from twinserve.experiments.metrics.latency import Latencies
from twinserve.experiments.metrics.metrics_config import MetricsConfig
from twinserve.experiments.metrics.statistics import NS_PER_MS, percentile_name
from twinserve.sched_core.plan import Ints
from twinserve.sim_backend.arrays import Floats

Interval: TypeAlias = tuple[float | None, float | None]


def confidence_intervals(latencies: Latencies, config: MetricsConfig) -> dict[str, Any] | None:
    """``{"confidence": c, "p99_ttft_ms": [low, high], ...}``; None unless ``config.bootstrap`` asks for it.

    A bound is None where the sample is too small to give one.
    """
    if config.bootstrap is None:
        return None
    confidence = config.bootstrap.confidence
    intervals: dict[str, Any] = {"confidence": confidence}
    for name in ("ttft", "tpot", "e2el"):
        samples = getattr(latencies, name) / NS_PER_MS
        for p in config.percentiles:
            intervals[f"{percentile_name(p)}_{name}_ms"] = list(quantile_interval(samples, p / 100, confidence))
    rng = np.random.default_rng(config.bootstrap.seed)
    bounds = bootstrap_intervals(
        latencies.itl, latencies.itl_owner, config.percentiles, config.bootstrap.samples, confidence, rng
    )
    for p, bound in zip(config.percentiles, bounds, strict=True):
        intervals[f"{percentile_name(p)}_itl_ms"] = list(bound)
    return intervals


def quantile_interval(samples: Floats, quantile: float, confidence: float) -> Interval:
    """Order statistics that hold the true quantile of independent samples with at least ``confidence``.

    The number of samples below the quantile is binomial; each tail gets half of the error. A side that even the
    extreme sample cannot bound is None.
    """
    from scipy.special import bdtr

    count = len(samples)
    if count == 0:
        return None, None
    ordered, tail = np.sort(samples), (1 - confidence) / 2
    below = bdtr(np.arange(count), count, quantile)  # P(at most k samples lie below the quantile), k < count
    lower = int(np.searchsorted(below, tail, side="right"))  # largest rank whose error stays within the tail
    upper = int(np.searchsorted(below, 1 - tail, side="left"))
    return (
        float(ordered[lower - 1]) if lower > 0 else None,
        float(ordered[upper]) if upper < count else None,
    )


def bootstrap_intervals(
    gaps_ns: Ints,
    owners: Ints,
    percentiles: Iterable[float],
    num_samples: int,
    confidence: float,
    rng: np.random.Generator,
) -> list[Interval]:
    """Percentile-bootstrap intervals (ms) of the pooled gaps, one per percentile; requests are drawn whole."""
    percentiles = tuple(percentiles)
    if len(gaps_ns) == 0:
        return [(None, None)] * len(percentiles)
    order = np.argsort(gaps_ns, kind="stable")
    gaps, owners = gaps_ns[order] / NS_PER_MS, np.unique(owners, return_inverse=True)[1][order]
    num_requests = int(owners.max()) + 1
    quantiles = np.array(percentiles) / 100
    draws = np.empty((num_samples, len(percentiles)))
    for row in draws:
        weights = np.bincount(rng.integers(num_requests, size=num_requests), minlength=num_requests)
        row[:] = _weighted_quantiles(gaps, weights[owners], quantiles)
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0).tolist()
    return list(zip(low, high, strict=True))


def _weighted_quantiles(ordered: Floats, repeats: Ints, quantiles: Floats) -> Floats:
    """numpy's linear quantiles of ``np.repeat(ordered, repeats)``, without building it."""
    ends = np.cumsum(repeats)
    position = (ends[-1] - 1) * quantiles
    below = np.floor(position)
    low = ordered[np.searchsorted(ends, below, side="right")]
    high = ordered[np.searchsorted(ends, np.minimum(below + 1, ends[-1] - 1), side="right")]
    between: Floats = low + (position - below) * (high - low)
    return between
