"""A run over time: batch composition, KV cache, queue and preemptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from twinserve.experiments.metrics.window import NS_PER_S
from twinserve.experiments.plots.style import OKABE_ITO, stacked_panels
from twinserve.run_core.record import Columns
from twinserve.sim_backend.arrays import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_BINS = 300
BLUE, VERMILLION, GREEN = OKABE_ITO[:3]


def plot_steps(steps: Columns, num_blocks: int | None, title: str) -> Figure:
    """Three panels over time: tokens per step (decode below prefill), KV cache with preemptions, requests.

    Values are means over time within at most MAX_BINS equal spans; between steps they are 0. Without ``num_blocks``
    the cache is drawn in blocks, counted from the most that were ever free.
    """
    edges = _edges(steps)
    with stacked_panels(3, 1.35, title, sharex=True) as (figure, axes):
        batch, cache, queue = axes
        _draw_batch(batch, steps, edges)
        _draw_cache(cache, steps, edges, num_blocks)
        _draw_queue(queue, steps, edges)
        queue.set_xlabel("time (s)")
        queue.set_xlim(edges[0], edges[-1])
        for ax in axes:
            ax.set_ylim(bottom=0)
        figure.align_ylabels(axes)
        return figure


def binned(start_s: Floats, end_s: Floats, values: Floats, edges: Floats) -> Floats:
    """Mean over each span between ``edges`` of the function that is ``values[i]`` during step i and 0 between steps."""
    knots = np.column_stack((start_s, end_s)).ravel()
    area = np.cumsum(np.column_stack((np.zeros(len(values)), values * (end_s - start_s))).ravel())
    means: Floats = np.diff(np.interp(edges, knots, area)) / np.diff(edges)
    return means


def _edges(steps: Columns) -> Floats:
    start, end = _seconds(steps, "start_ns"), _seconds(steps, "end_ns")
    if len(start) == 0:
        return np.array([0.0, 1.0])
    return np.linspace(min(start[0], 0.0), max(end[-1], 1e-9), min(MAX_BINS, max(len(start), 20)) + 1)


def _seconds(steps: Columns, name: str) -> Floats:
    seconds: Floats = np.asarray(steps[name], dtype=np.float64) / NS_PER_S
    return seconds


def _series(steps: Columns, values: Floats, edges: Floats) -> Floats:
    if len(values) == 0:
        return np.zeros(len(edges) - 1)
    return binned(_seconds(steps, "start_ns"), _seconds(steps, "end_ns"), values, edges)


def _column(steps: Columns, name: str) -> Floats:
    return np.asarray(steps[name], dtype=np.float64)


def _draw_batch(ax: Any, steps: Columns, edges: Floats) -> None:
    decode = _series(steps, _column(steps, "num_decodes"), edges)
    total = _series(steps, _column(steps, "num_tokens"), edges)
    ax.stairs(total, edges, baseline=decode, fill=True, color=VERMILLION, label="prefill")
    ax.stairs(decode, edges, fill=True, color=BLUE, label="decode")
    ax.set_ylabel("tokens\nper step")
    _legend(ax)


def _draw_cache(ax: Any, steps: Columns, edges: Floats, num_blocks: int | None) -> None:
    free = _column(steps, "num_free_blocks")
    if num_blocks:
        used = 100 * (1 - free / num_blocks)
        ax.set_ylabel("KV cache\nin use (%)")
        ax.set_yticks([0, 25, 50, 75, 100])
    else:
        used = free.max(initial=0) - free
        ax.set_ylabel("KV blocks\nin use")
    ax.stairs(_series(steps, used, edges), edges, fill=True, color=GREEN, alpha=0.6, label="KV cache")
    ax.set_ylim(0, 120 if num_blocks else max(1.2 * used.max(initial=0), 1))
    _draw_preemptions(ax, steps)
    _legend(ax)


def _draw_preemptions(ax: Any, steps: Columns) -> None:
    preempted = _column(steps, "num_preempted") > 0
    if preempted.any():
        times = _seconds(steps, "start_ns")[preempted]
        across = ax.get_xaxis_transform()  # x in seconds, y as a share of the panel
        ax.vlines(times, 0.88, 0.97, transform=across, color="#000000", linewidth=0.6, label="preemption")


def _draw_queue(ax: Any, steps: Columns, edges: Floats) -> None:
    ax.stairs(_series(steps, _column(steps, "num_running"), edges), edges, color=BLUE, label="running")
    ax.stairs(_series(steps, _column(steps, "num_waiting"), edges), edges, color=VERMILLION, label="waiting")
    ax.set_ylabel("requests")
    _legend(ax)


def _legend(ax: Any) -> None:
    """Above the panel, where it hides no data."""
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=3, borderaxespad=0)
