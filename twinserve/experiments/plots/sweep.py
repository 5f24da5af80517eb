"""Tail latency of a sweep against its swept key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from twinserve.experiments.metrics import mean_over_seeds
from twinserve.experiments.plots.describe import key_label
from twinserve.experiments.plots.encoding import Encoding, encode, is_numeric, name_blanks
from twinserve.experiments.plots.style import plain_numbers, stacked_panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LATENCIES = ("ttft", "tpot", "itl")
LOG_FROM_RATIO = 8
SEED_KEYS = ("seed", "repeat")


def plot_sweep(
    summary: pd.DataFrame,
    swept: Sequence[str],
    *,
    title: str = "",
    percentile: str = "p99",
    across: str | None = None,
) -> Figure | None:
    """TTFT, TPOT and ITL against one swept key; None when no key but ``seed`` and ``repeat`` was swept.

    ``summary`` has a row per run with the ``swept`` columns and ``p99_ttft_ms`` and so on. ``across`` is the
    key of the x axis, by default the numeric key with most values. Every combination of the other swept keys is a
    line. Runs that differ in none of them (seeds) are averaged, with the 95 % interval of the mean as a bar, cut at
    the panel's edge. A cross marks points where requests failed: the latencies there are those of the requests that
    remained.
    """
    keys = [key for key in swept if key not in SEED_KEYS]
    if not keys:
        return None
    summary = name_blanks(summary, keys)
    encoding = encode(summary, keys, across)
    with stacked_panels(len(LATENCIES), 1.5, "", sharex=True) as (figure, axes):
        for ax, name in zip(axes, LATENCIES, strict=True):
            _draw_lines(ax, summary, encoding, f"{percentile}_{name}_ms")
            ax.set_ylabel(f"{percentile} {name.upper()} (ms)")
            _scale_y(ax)
        _scale_x(axes[-1], summary, encoding.across)
        figure.align_ylabels(axes)
        _draw_legend(figure, axes[0], encoding, title)
        return figure


def _draw_lines(ax: Any, summary: pd.DataFrame, encoding: Encoding, metric: str) -> None:
    if metric not in summary:
        return
    places = _places(summary, encoding.across)
    lossy: list[tuple[float, float]] = []
    lines = summary.groupby(encoding.keys, sort=False, dropna=False) if encoding.keys else [((), summary)]
    for combination, rows in lines:
        points = [_point(places[value], part, metric) for value, part in rows.groupby(encoding.across)]
        known = sorted((point for point in points if point is not None), key=lambda point: point.x)
        _draw_line(ax, known, encoding.line_style(combination))
        lossy += [(point.x, point.mean) for point in known if point.lossy]
    if lossy:
        ax.plot(*zip(*lossy, strict=True), "x", color="#000000", markersize=5, zorder=5, label="some requests failed")


class _Point(NamedTuple):
    """Mean over seeds at ``x`` and how far its bar reaches; ``lossy`` when requests failed there."""

    x: float
    mean: float
    below: float
    above: float
    lossy: bool


def _point(x: float, runs: pd.DataFrame, metric: str) -> _Point | None:
    found = mean_over_seeds([None if math.isnan(value) else value for value in runs[metric].astype(float)])
    if found.mean is None:
        return None
    below = 0.0 if found.low is None else found.mean - found.low
    above = 0.0 if found.high is None else found.high - found.mean
    return _Point(x, found.mean, below, above, "failed" in runs and bool((runs["failed"] > 0).any()))


def _draw_line(ax: Any, points: Sequence[_Point], style: dict[str, Any]) -> None:
    if not points:
        return
    x, y, below, above, _ = zip(*points, strict=True)
    bars = (below, above) if any(below) or any(above) else None
    ax.errorbar(x, y, yerr=bars, capsize=1.5, elinewidth=0.7, **style)


def _draw_legend(figure: Any, ax: Any, encoding: Encoding, title: str) -> None:
    """Above the panels: the encoding, the cross where one was drawn, and the figure's title over both."""
    handles, labels = encoding.legend()
    crosses = [line for line in ax.lines if line.get_marker() == "x"][:1]
    handles, labels = [*handles, *crosses], [*labels, *(line.get_label() for line in crosses)]
    if handles:
        figure.legend(handles, labels, loc="outside upper center", ncols=2, title=title or None, title_fontsize=8)
    elif title:
        figure.suptitle(title)


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
