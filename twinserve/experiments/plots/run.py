"""All figures of one run."""

from __future__ import annotations

from pathlib import Path

from twinserve.experiments.plots.cdf import plot_run_cdfs
from twinserve.experiments.plots.describe import lookup, run_title
from twinserve.experiments.plots.timeline import plot_timeline
from twinserve.experiments.store.run_folder import RunFolder, read_run_folder


def plot_run(run_dir: Path, out: Path) -> list[Path]:
    """Draw ``out/cdf.png`` and ``out/timeline.png`` of the run in ``run_dir``; returns their paths.

    Raises:
        ConfigError: ``run_dir`` is not the folder of a run.
    """
    run = read_run_folder(run_dir)
    title = run_title(run.config)
    return [
        plot_run_cdfs(run.record, title, out / "cdf.png"),
        plot_timeline(run.record.steps, _num_blocks(run), title, out / "timeline.png"),
    ]


def _num_blocks(run: RunFolder) -> int | None:
    known = run.result.get("num_blocks") or lookup(run.config, "engine.num_gpu_blocks_override")
    return known if isinstance(known, int) else None
