"""A run's record as DataFrames: seconds since the run's start, latencies in milliseconds.

Every latency is that of ``experiments.metrics``, and known for completed requests only. Those that ``result.json`` is
about are ``table[table.measured]``: percentiles of their columns are its percentiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from twinserve.experiments.metrics import Latencies, MetricsConfig, request_latencies
from twinserve.experiments.metrics.statistics import NS_PER_MS
from twinserve.experiments.metrics.window import NS_PER_S, measurement_window
from twinserve.run_core.record import STEP_COLUMNS, RunRecord
from twinserve.sched_core.plan import Bools
from twinserve.sim_backend.arrays import Floats

KEPT = ("request_id", "client", "priority", "prompt_len", "max_tokens", "output_len")
COUNTS = ("num_preemptions", "num_cached_tokens")
ENDS = ("finish_reason", "refusal", "refusal_detail")
LATENCIES = ("ttft", "e2el", "queue_time", "client_queue_time")


def requests_table(record: RunRecord, config: Mapping[str, Any]) -> pd.DataFrame:
    """A row per request, in order of sending.

    request_id, client, priority, prompt_len, max_tokens, output_len; arrival_s; ttft_ms, tpot_ms, itl_ms (the mean of
    the request's own inter-token gaps), e2el_ms, queue_time_ms and client_queue_time_ms, NaN where the request has
    none; num_preemptions, num_cached_tokens; finish_reason, refusal, refusal_detail; measured (inside the window that
    the figures are about).
    """
    columns, latencies = record.requests, request_latencies(record)
    num_requests = len(columns["request_id"])
    table: dict[str, Any] = {name: columns[name] for name in KEPT if name in columns}
    table["arrival_s"] = np.asarray(columns["arrival_ns"], dtype=np.float64) / NS_PER_S
    several = latencies.rows[latencies.output_len > 1]
    parts = {name: (latencies.rows, getattr(latencies, name)) for name in LATENCIES}
    parts |= {"tpot": (several, latencies.tpot), "itl": _mean_gaps(latencies)}
    for name in ("ttft", "tpot", "itl", "e2el", "queue_time", "client_queue_time"):
        table[f"{name}_ms"] = _spread(*parts[name], num_requests)
    table |= {name: pd.array(list(columns[name]), dtype="Int64") for name in COUNTS if name in columns}
    table |= {name: list(columns[name]) for name in ENDS if name in columns}
    return pd.DataFrame({**table, "measured": _measured(record, config)})


def tokens_table(record: RunRecord, config: Mapping[str, Any]) -> pd.DataFrame:
    """A row per delivered token, each request's together and in order of delivery.

    request_id, time_s, itl_ms (the gap since the request's token before; NaN for its first, and where the request did
    not complete), measured (as for requests), and token_id where a real model gave one.
    """
    latencies = request_latencies(record)
    columns = {name: np.asarray(column, dtype=np.int64) for name, column in record.tokens.items()}
    ids = np.asarray(record.requests["request_id"], dtype=np.int64)
    position = pd.Index(ids).get_indexer(pd.Index(columns["request_id"]))
    order = np.argsort(position, kind="stable")
    owners = position[order]
    has_gap = np.isin(owners, latencies.rows) & np.r_[False, owners[1:] == owners[:-1]][: len(owners)]
    table: dict[str, Any] = {
        "request_id": columns["request_id"][order],
        "time_s": columns["time_ns"][order] / NS_PER_S,
        "itl_ms": _spread(np.flatnonzero(has_gap), latencies.itl, len(owners)),
        "measured": _measured(record, config)[owners],
    }
    table |= {name: columns[name][order] for name in columns if name == "token_id"}
    return pd.DataFrame(table)


def steps_table(record: RunRecord) -> pd.DataFrame:
    """A row per step: step_id, start_s, duration_ms, device_ms (NaN where no device was timed), then its features."""
    steps = record.steps
    start, end, device = (np.array(steps[name], dtype=np.float64) for name in ("start_ns", "end_ns", "device_ns"))
    times = {"start_s": start / NS_PER_S, "duration_ms": (end - start) / NS_PER_MS, "device_ms": device / NS_PER_MS}
    features = {name: steps[name] for name in STEP_COLUMNS if not name.endswith("_ns") and name != "step_id"}
    return pd.DataFrame({"step_id": steps["step_id"], **times, **features})


def _measured(record: RunRecord, config: Mapping[str, Any]) -> Bools:
    return measurement_window(record.requests, MetricsConfig.model_validate(config.get("metrics", {}))).measured


def _mean_gaps(latencies: Latencies) -> tuple[Any, Floats]:
    """(rows of requests with gaps, the mean of each one's gaps in ns)."""
    counts = np.bincount(latencies.itl_owner, minlength=len(latencies.rows))
    sums = np.bincount(latencies.itl_owner, weights=latencies.itl, minlength=len(latencies.rows))
    known = counts > 0
    return latencies.rows[known], sums[known] / counts[known]


def _spread(rows: Any, values_ns: Any, length: int) -> Floats:
    """Milliseconds at ``rows`` of a column, NaN elsewhere."""
    column = np.full(length, np.nan)
    column[rows] = values_ns / NS_PER_MS
    return column
