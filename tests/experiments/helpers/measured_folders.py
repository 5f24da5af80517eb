"""Run and profile folders of made-up steps, and a kernel profile that can be spoilt."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.paths import DATA
from tests.sim_backend.measured_steps import SIZES, steps_of
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.calibration.values import HostGap, StepTerms
from twinserve.sim_backend.fitting.measured import join

KERNELS = DATA / "kernel_profile"
GAP = HostGap(base_ms=0.3, per_row_us=2.0, per_started_us=100.0)
MIXED = StepTerms(dense_knots_ms=((64.0, 6.0), (256.0, 9.0)), per_context_token_us=0.05, per_prefill_pair_us=0.001)
DECODE = StepTerms(dense_knots_ms=((1.0, 5.0), (8.0, 5.2), (32.0, 5.5)), per_context_token_us=0.04)
MANIFEST = {
    "backend": "real",
    "device": "Some GPU",
    "model": "Qwen/Qwen3-8B",
    "dtype": "bfloat16",
    "attention_backend": "fa2",
    "num_blocks": 1000,
    "capture_sizes": {"decode": list(SIZES.decode), "mixed": list(SIZES.mixed)},
}


def step_table(count=300, seed=0):
    """Columns of a graph-mode run whose times follow MIXED, DECODE and GAP exactly."""
    steps = join([steps_of(t, m, GAP, count, seed) for t, m in ((MIXED, GraphMode.MIXED), (DECODE, GraphMode.DECODE))])
    interval = np.rint(steps.interval_ns).astype(np.int64)
    end = np.cumsum(interval)
    columns = {"step_id": np.arange(len(steps)), "start_ns": end - interval, "end_ns": end}
    columns |= {"device_ns": np.rint(steps.device_ns).astype(np.int64), "graph_mode": steps.modes.tolist()}
    return columns | {name: column.astype(np.int64) for name, column in steps.features.items()}


def write_run(folder, changes=(), manifest=(), block_size=16, **table):
    """A real run's folder; ``changes`` replaces columns (None leaves one out)."""
    columns = {**step_table(**table), **dict(changes)}
    _write(folder, "steps.parquet", columns, {**MANIFEST, **dict(manifest)})
    (folder / "config.yaml").write_text(f"engine: {{block_size: {block_size}}}\n")
    return folder


def write_profile(folder, sources=("runner", "engine"), repeats=3, changes=(), manifest=(), noise=0.0):
    """A profile: each shape ``repeats`` times as ``runner``, and one short run as ``engine``."""
    parts = []
    if "runner" in sources:
        shapes = step_table(seed=1)
        order = np.tile(np.arange(len(shapes["step_id"])), repeats)
        part = {name: np.asarray(column)[order] for name, column in shapes.items()}
        factor = 1 + noise * (np.repeat(np.arange(repeats), len(shapes["step_id"])) - repeats // 2)
        part["device_ns"] = np.rint(part["device_ns"] * factor).astype(np.int64)
        parts.append({**part, "source": np.full(len(order), "runner"), "shape_id": order})
    if "engine" in sources:
        run = step_table(count=100, seed=2)
        size = len(run["step_id"])
        parts.append({**run, "source": np.full(size, "engine"), "shape_id": np.full(size, 10_000)})
    columns = {name: np.concatenate([np.asarray(part[name]) for part in parts]) for name in parts[0]}
    columns["family"] = columns["graph_mode"]
    columns["interval_ns"] = columns.pop("end_ns") - columns.pop("start_ns")
    del columns["step_id"]
    facts = {**MANIFEST, "kind": "profile", "complete": True, "block_size": 16, **dict(manifest)}
    _write(folder, "profile.parquet", {**columns, **dict(changes)}, facts)
    return folder


def copy_kernels(folder, **replaced):
    """The made-up kernel profile; ``replaced`` gives files (by stem) new text."""
    shutil.copytree(KERNELS, folder)
    for stem, text in replaced.items():
        (next(folder.glob(f"{stem}.*"))).write_text(text)
    return folder


def _write(folder, name, columns, manifest):
    folder.mkdir(parents=True)
    kept = {key: pa.array(column) for key, column in columns.items() if column is not None}
    pq.write_table(pa.table(kept), folder / name)
    (folder / "manifest.json").write_text(json.dumps({key: v for key, v in manifest.items() if v is not None}))
