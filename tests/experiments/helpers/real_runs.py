"""Real runs of a tiny model on the CPU, on a clock that ticks the same every time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.experiments.helpers.small_experiments import small, write
from twinserve.experiments.cli.main import main

MILLISECOND = 1_000_000
STEP_NS, OVERSLEEP_NS = 2 * MILLISECOND + 1009, 61_007

EVENTFUL: dict[str, Any] = {
    "backend": "real",
    "real": {"device": "cpu"},
    "model": {"path": "tiny", "dtype": "float32"},
    "engine__max_num_batched_tokens": 48,
    "engine__max_num_seqs": 6,
    "engine__block_size": 8,
    "engine__num_gpu_blocks_override": 20,
    "engine__scheduler_reserve_full_isl": False,
    "workload__num_prompts": 36,
    "workload__input_len": {"dist": "uniform", "min": 3, "max": 24},
    "workload__output_len": {"dist": "uniform", "min": 9, "max": 24},
    "workload__arrival": {"process": "poisson", "request_rate": 120.0},
    "workload__shared_prefix": {"num_groups": 2, "prefix_len": 16},
    "workload__sessions": {"turns": {"dist": "uniform", "min": 1, "max": 3}, "think_time_s": 0.003},
    "workload__abort": {"probability": 0.15, "after_s": 0.025},
    "workload__max_concurrency": 8,
}
"""Preemptions, prefix hits on sampled tokens, client aborts, conversations and a concurrency cap in one run."""


def run_real(folder: Path, *, decisions: bool = True, **changes: Any) -> Path:
    """The folder of a finished real run below ``folder``."""
    from tests.real_backend.tiny_qwen3 import save_checkpoint
    from twinserve.run_core.clock import ManualClock

    if not (folder / "tiny").exists():
        save_checkpoint(folder / "tiny")
    path = write(folder, small(**{**EVENTFUL, **changes}))
    before = set((folder / "out").glob("*"))
    with pytest.MonkeyPatch.context() as patch:
        clock = ManualClock(tick_ns=STEP_NS, oversleep_ns=OVERSLEEP_NS)
        patch.setattr("twinserve.real_backend.build.WallClock", lambda: clock)
        options = ["--decisions"] if decisions else []
        assert main(["run", str(path), "--out", str(folder / "out"), "--no-progress", *options]) == 0
    (made,) = set((folder / "out").glob("*")) - before
    return made


def edit(path, **changes):
    """Changes keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def change_column(path, name, change):
    """Replaces a column of a parquet file."""
    columns = parquet.read_table(path).to_pydict()
    columns[name] = change(columns[name])
    parquet.write_table(pa.table(columns), path)
