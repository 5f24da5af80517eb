"""Cumulative distributions of TTFT, TPOT and ITL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinserve.experiments.metrics import request_latencies
from twinserve.experiments.metrics.latency import Latencies
from twinserve.experiments.metrics.statistics import NS_PER_MS, percentile_name
from twinserve.experiments.plots.style import OKABE_ITO, colours, plain_numbers, stacked_panels
from twinserve.experiments.store.run_folder import read_run_folder
from twinserve.run_core.record import RunRecord
from twinserve.sim_backend.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LATENCIES = ("ttft", "tpot", "itl")
MARKED = ((50, "o"), (90, "s"), (99, "^"))
LOG_FROM_TAIL = 5  # p99.9 over the median
FURTHEST_OVER_TAIL = 2  # a single outlier must not press everything else to the left
PANEL_HEIGHT = 1.45


def plot_run_cdfs(record: RunRecord, title: str) -> Figure:
    """One panel per latency, with p50, p90 and p99 marked on the curve and given in the legend."""
    with stacked_panels(len(LATENCIES), PANEL_HEIGHT, title) as (figure, axes):
        for ax, name in zip(axes, LATENCIES, strict=True):
            samples = getattr(request_latencies(record), name) / NS_PER_MS
            _scale(ax, name, [samples])
            _curve(ax, samples, OKABE_ITO[0])
            _mark(ax, samples, OKABE_ITO[1])
        return figure


def plot_compare_cdfs(runs: Mapping[str, RunRecord | Path]) -> Figure:
    """The CDFs of several runs in the same axes, one colour per label; ``runs`` maps labels to records or folders."""
    found = {label: request_latencies(_record(run)) for label, run in runs.items()}
    return plot_cdfs(found, LATENCIES)


def plot_cdfs(found: Mapping[str, Latencies], names: Sequence[str], title: str = "") -> Figure:
    """One panel per latency of ``names`` with a curve per label, the first drawn widest so that all stay visible."""
    with stacked_panels(len(names), PANEL_HEIGHT, "") as (figure, axes):
        for ax, name in zip(axes, names, strict=True):
            samples = [getattr(latencies, name) / NS_PER_MS for latencies in found.values()]
            _scale(ax, name, samples)
            for rank, (values, colour, label) in enumerate(zip(samples, colours(len(found)), found, strict=True)):
                _curve(ax, values, colour, label, linewidth=1.2 + 0.8 * max(min(len(found), 3) - 1 - rank, 0))
                _marks_only(ax, values, colour)
        handles, labels = axes[0].get_legend_handles_labels()
        keys = ([*handles, *_mark_handles()], [*labels, *_mark_names()])
        figure.legend(*keys, loc="outside upper center", ncols=3, title=title or None, title_fontsize=8)
        return figure


def _record(run: RunRecord | Path) -> RunRecord:
    return read_run_folder(run).record if isinstance(run, Path) else run


def _scale(ax: Any, name: str, samples: list[Floats]) -> None:
    ax.set_xlabel(f"{name.upper()} (ms)")
    ax.set_ylabel("share of tokens" if name == "itl" else "share of requests")
    ax.set_ylim(0, 1.03)
    pooled = np.concatenate(samples) if samples else np.empty(0)
    if len(pooled) == 0:
        ax.text(0.5, 0.5, "no samples", transform=ax.transAxes, ha="center")
        return
    median, tail = np.percentile(pooled, [50, 99.9])
    if pooled.min() > 0 and tail / median > LOG_FROM_TAIL:
        ax.set_xscale("log")
        ax.set_xlim(pooled.min() / 1.15, pooled.max() * 1.15)
        plain_numbers(ax.xaxis)
    else:
        furthest = min(float(pooled.max()), FURTHEST_OVER_TAIL * float(tail))
        ax.set_xlim(left=0, right=max(furthest * 1.03, 1e-3))


def _curve(ax: Any, samples: Floats, colour: Any, label: str = "", linewidth: float = 1.2) -> None:
    """The empirical CDF, drawn through at most a thousand points and denser in the tail."""
    if len(samples) == 0:
        ax.plot([], [], color=colour, label=label)
        return
    levels = np.concatenate((np.linspace(0, 0.98, 491), np.linspace(0.98, 1, 201)))
    if len(samples) < len(levels):
        levels = np.arange(1, len(samples) + 1) / len(samples)
    values = np.quantile(samples, levels, method="inverted_cdf")
    style = {"drawstyle": "steps-post", "color": colour, "label": label, "linewidth": linewidth}
    ax.plot(np.r_[values[0], values], np.r_[0.0, levels], **style)


def _mark(ax: Any, samples: Floats, colour: str) -> None:
    """p50, p90 and p99 as marks, their values in the corner that the curve leaves free."""
    if len(samples) == 0:
        return
    for percentile, marker in MARKED:
        value = float(np.percentile(samples, percentile))
        label = f"{percentile_name(percentile)}: {value:.1f} ms"
        ax.plot([value], [percentile / 100], marker, color=colour, markersize=4, label=label)
    in_pixels = ax.transData.transform((float(np.percentile(samples, 40)), 0.5))
    across, _ = ax.transAxes.inverted().transform(in_pixels)
    ax.legend(loc="lower right" if across < 0.55 else "upper left")


def _marks_only(ax: Any, samples: Floats, colour: Any) -> None:
    for percentile, marker in MARKED if len(samples) else ():
        ax.plot([float(np.percentile(samples, percentile))], [percentile / 100], marker, color=colour)


def _mark_handles() -> list[Any]:
    from matplotlib.lines import Line2D

    return [Line2D([], [], color="#555555", marker=marker, linestyle="") for _, marker in MARKED]


def _mark_names() -> list[str]:
    return [percentile_name(percentile) for percentile, _ in MARKED]
