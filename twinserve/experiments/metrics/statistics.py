"""Mean, median, deviation and percentiles of one latency, named as in ``vllm bench serve``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERCENTILE_METHOD = "numpy linear"
NS_PER_MS = 1e6


def percentile_name(percentile: float) -> str:
    """``p99`` for 99, ``p99.9`` for 99.9."""
    return f"p{percentile:g}"


def latency_statistics(name: str, samples_ns: NDArray[Any], percentiles: Iterable[float]) -> dict[str, float | None]:
    """Statistics in milliseconds of one population, the same for all; every one is None when it is empty.

    Keys: ``NAME_count``, ``mean_NAME_ms``, ``median_NAME_ms``, ``std_NAME_ms`` (population), ``pP_NAME_ms``.
    """
    percentiles = tuple(percentiles)
    keys = [f"{percentile_name(p)}_{name}_ms" for p in percentiles]
    head = (f"mean_{name}_ms", f"median_{name}_ms", f"std_{name}_ms")
    count: dict[str, float | None] = {f"{name}_count": len(samples_ns)}
    if len(samples_ns) == 0:
        return count | dict.fromkeys([*head, *keys])
    samples = samples_ns / NS_PER_MS
    median, *values = np.percentile(samples, [50.0, *percentiles]).tolist()
    figures = (float(samples.mean()), median, float(samples.std()))
    return count | dict(zip(head, figures, strict=True)) | dict(zip(keys, values, strict=True))
