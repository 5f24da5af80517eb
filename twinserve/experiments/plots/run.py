"""The figures of one run, whether it was read from its folder or never written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinserve.experiments.plots.cdf import plot_run_cdfs
from twinserve.experiments.plots.describe import lookup, run_title
from twinserve.experiments.plots.timeline import plot_steps
from twinserve.experiments.store.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_cdf(run: RunFolder) -> Figure:
    """The distributions of TTFT, TPOT and ITL."""
    return plot_run_cdfs(run.record, run_title(run.config))


def plot_timeline(run: RunFolder) -> Figure:
    """Batch composition, KV cache and queue over time."""
    return plot_steps(run.record.steps, _num_blocks(run), run_title(run.config))


def _num_blocks(run: RunFolder) -> int | None:
    known = run.result.get("num_blocks") or lookup(run.config, "engine.num_gpu_blocks_override")
    return known if isinstance(known, int) else None
