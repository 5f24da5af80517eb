"""Scheduler figures over the whole run: steps, preemptions, KV-cache usage and prefix hits."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinserve.run_core.record import RunRecord

RECORDED = frozenset({"num_steps", "num_preemptions"})  # counted from the records; the engine counts the same


def engine_statistics(record: RunRecord, num_blocks: int | None) -> dict[str, Any]:
    """Step and KV-cache figures (means are over steps), then the engine's own counters by their names.

    ``peak_kv_usage`` (0 to 1) needs ``num_blocks``, the size of the pool. ``prefix_cache_hit_rate`` (0 to 1, in
    tokens) is vLLM's: over first admissions. ``prefix_cache_hit_rate_with_resumes`` adds those after a preemption,
    which find what they computed themselves. None when nothing was looked up.
    """
    counters = {name: int(value) for name, value in sorted(record.stats.items())}
    queries, hits = (counters.get(f"prefix_cache_{name}", 0) for name in ("queries", "hits"))
    again, found_again = (counters.get(f"prefix_cache_preempted_{name}", 0) for name in ("queries", "hits"))
    return {
        **_step_statistics(record, num_blocks),
        "num_preemptions": int(sum(record.requests["num_preemptions"])),
        "prefix_cache_hit_rate": _share(hits, queries),
        "prefix_cache_hit_rate_with_resumes": _share(hits + found_again, queries + again),
        **{name: value for name, value in counters.items() if name not in RECORDED},
    }


def _share(hits: int, queries: int) -> float | None:
    return hits / queries if queries else None


def _step_statistics(record: RunRecord, num_blocks: int | None) -> dict[str, Any]:
    steps = record.steps
    num_steps = len(steps["step_id"])
    free = [int(np.min(np.asarray(steps["num_free_blocks"])))] if num_steps else []
    return {
        "num_steps": num_steps,
        "mean_batch_tokens": _mean(record, "num_tokens"),
        "mean_batch_size": _mean(record, "num_rows"),
        "mean_running": _mean(record, "num_running"),
        "mean_waiting": _mean(record, "num_waiting"),
        "min_free_blocks": free[0] if free else None,
        "peak_kv_usage": 1 - free[0] / num_blocks if free and num_blocks else None,
    }


def _mean(record: RunRecord, column: str) -> float | None:
    values = np.asarray(record.steps[column], dtype=np.float64)
    return float(values.mean()) if len(values) else None
