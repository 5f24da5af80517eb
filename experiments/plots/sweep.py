"""Tail latency of a sweep against its swept key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.metrics import mean_over_seeds
from experiments.plots.describe import key_label
from experiments.plots.encoding import Encoding, encode, is_numeric
from experiments.plots.style import plain_numbers, save, stacked_panels

if TYPE_CHECKING:
    import pandas as pd

LATENCIES = ("ttft", "tpot", "itl")
LOG_FROM_RATIO = 8


def plot_sweep(
    summary: pd.DataFrame, swept: Sequence[str], out: Path, *, title: str = "", percentile: str = "p99"
) -> list[Path]:
    """Draw ``out/sweep_p99.png``: TTFT, TPOT and ITL against the swept numeric key; returns the paths.

    ``summary`` has a row per run with the ``swept`` columns and ``p99_ttft_ms`` and so on. Every combination of the
    other swept keys is a line. Runs that differ in none of them (seeds) are averaged, with the 95 % interval of the
    mean as a bar, cut at the panel's edge.

    Raises:
        ValueError: ``swept`` is empty.
    """
    encoding = encode(summary, swept)
    with stacked_panels(len(LATENCIES), 1.45, title, sharex=True) as (figure, axes):
        for ax, name in zip(axes, LATENCIES, strict=True):
            _draw_lines(ax, summary, encoding, f"{percentile}_{name}_ms")
            ax.set_ylabel(f"{percentile} {name.upper()} (ms)")
            _scale_y(ax)
        _scale_x(axes[-1], summary, encoding.across)
        figure.align_ylabels(axes)
        handles, labels = encoding.legend()
        if handles:
            figure.legend(handles, labels, loc="outside upper center", ncols=2)
        return [save(figure, out / f"sweep_{percentile}.png")]


def _draw_lines(ax: Any, summary: pd.DataFrame, encoding: Encoding, metric: str) -> None:
    if metric not in summary:
        return
    places = _places(summary, encoding.across)
    lines = summary.groupby(encoding.keys, sort=False, dropna=False) if encoding.keys else [((), summary)]
    for combination, rows in lines:
        points = [_point(places[value], part[metric]) for value, part in rows.groupby(encoding.across, sort=True)]
        known = sorted(point for point in points if point[1] is not None)
        if not known:
            continue
        x, y, below, above = np.array(known, dtype=np.float64).T
        bars = [below, above] if (below + above).any() else None
        ax.errorbar(x, y, yerr=bars, capsize=1.5, elinewidth=0.7, **encoding.line_style(combination))


def _point(place: float, values: pd.Series[Any]) -> tuple[float, float | None, float, float]:
    """(x, mean over seeds, bar below, bar above)."""
    found = mean_over_seeds([None if math.isnan(value) else value for value in values.astype(float)])
    if found.mean is None or found.low is None or found.high is None:
        return place, found.mean, 0.0, 0.0
    return place, found.mean, found.mean - found.low, found.high - found.mean


def _places(summary: pd.DataFrame, key: str) -> dict[Any, float]:
    """Where each value of ``key`` lies on the x axis: at itself, or by rank of appearance if it is no number."""
    values = summary[key].unique().tolist()
    if is_numeric(summary[key]):
        return {value: float(value) for value in values}
    return {value: float(rank) for rank, value in enumerate(values)}


def _scale_x(ax: Any, summary: pd.DataFrame, key: str) -> None:
    ax.set_xlabel(key_label(key))
    places = _places(summary, key)
    if is_numeric(summary[key]):
        positions = sorted(places.values())
        if positions[0] > 0 and positions[-1] / positions[0] >= LOG_FROM_RATIO:
            ax.set_xscale("log", base=2)
            ax.set_xticks(positions, [f"{position:g}" for position in positions], minor=False)
            ax.minorticks_off()
    else:
        ax.set_xticks(list(places.values()), [str(value) for value in places])


def _scale_y(ax: Any) -> None:
    """Limits from the means, so that wide bars of few seeds are cut: from 0, or logarithmic over a wide range."""
    means = [container.lines[0].get_ydata() for container in ax.containers]
    values = np.concatenate([np.asarray(line, dtype=np.float64) for line in means] or [np.empty(0)])
    if len(values) and values.min() > 0 and values.max() / values.min() >= LOG_FROM_RATIO:
        ax.set_yscale("log")
        ax.set_ylim(values.min() / 1.5, values.max() * 1.5)
        plain_numbers(ax.yaxis)
    elif len(values):
        ax.set_ylim(0, max(1.15 * values.max(), 1e-3))
