"""From a result folder to its figures, whichever kind of folder it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.names import PROFILE, PROFILE_PICTURE, REQUESTS, SUMMARY
from twinserve.experiments.plots.describe import run_title
from twinserve.experiments.plots.profile import plot_profile
from twinserve.experiments.plots.run import plot_cdf, plot_timeline
from twinserve.experiments.plots.style import save
from twinserve.experiments.plots.sweep import plot_sweep
from twinserve.experiments.store.profile_folder import is_profile_folder, read_profile
from twinserve.experiments.store.run_folder import (
    find_run_folders,
    is_run_folder,
    read_config,
    read_manifest,
    read_run_folder,
)
from twinserve.experiments.store.sweep_folder import is_sweep_folder, read_summary

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_DOTTED_KEY = re.compile(r"[a-z_]+(\.[a-z_][a-z0-9_]*)+")


def save_figures(folder: Path, out: Path) -> list[Path]:
    """Draw the run, sweep or profile in ``folder`` and write its figures below ``out``; returns their paths.

    Raises:
        ConfigError: ``folder`` holds none of them, or a sweep that varied nothing; or ``out`` cannot be written.
    """
    figures = _figures(folder)
    try:
        return [save(figure, out / name) for name, figure in figures.items()]
    except OSError as error:
        raise ConfigError(f"cannot be written ({error.strerror}); choose another --out", file=out) from error


def _figures(folder: Path) -> dict[str, Figure]:
    """By the names of their files."""
    if is_run_folder(folder):
        run = read_run_folder(folder)
        return {"cdf.png": plot_cdf(run), "timeline.png": plot_timeline(run)}
    if is_sweep_folder(folder):
        figure = plot_sweep_folder(folder)
        return {} if figure is None else {"sweep_p99.png": figure}
    if is_profile_folder(folder):
        manifest = read_manifest(folder, "profile again with --force")
        return {PROFILE_PICTURE: plot_profile(read_profile(folder), manifest)}
    kinds = f"a run ({REQUESTS}), a sweep ({SUMMARY}) or a profile ({PROFILE})"
    problem = f"holds none of these: {kinds}; give a folder that one of them wrote"
    raise ConfigError(problem, file=folder)


def swept_keys(summary: pd.DataFrame) -> list[str]:
    """The configuration keys among the columns that take several values (``p99.9_ttft_ms`` is no key)."""
    names = [str(name) for name in summary.columns]
    return [name for name in names if _DOTTED_KEY.fullmatch(name) and summary[name].nunique() > 1]


def plot_sweep_folder(folder: Path, **options: Any) -> Figure | None:
    """The sweep in ``folder``, titled after its first run; ``options`` are those of ``plot_sweep``.

    Raises:
        ConfigError: the summary is no table, or no key takes two values.
    """
    summary = read_summary(folder)
    swept = swept_keys(summary)
    if not swept:
        raise ConfigError("no configuration key takes two values, so there is nothing to plot against", file=folder)
    first = next(iter(find_run_folders(folder)), folder)
    return plot_sweep(summary, swept, title=run_title(read_config(first), leave_out=swept), **options)
