"""Errors of a simulation in percent: one run's with their parts, and those of many runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from twinserve.experiments.plots.style import MARKERS, OKABE_ITO, colours, stacked_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Errors = Mapping[str, float | None]
ROW_HEIGHT = 0.19
LONGEST_LABEL = 30


def plot_error_split(totals: Errors, parts: Mapping[str, Errors], title: str) -> Figure:
    """A bar per figure, first on top, of its error's parts (to the right if positive), with the whole as a mark.

    ``totals`` maps a figure's label to its error, ``parts`` the name of a part to the same labels' shares. What is
    None is left out.
    """
    labels = [label for label, total in totals.items() if total is not None]
    rows = np.arange(len(labels))
    with stacked_panels(1, ROW_HEIGHT * len(labels) + 0.9, "") as (figure, (ax,)):
        left, right = np.zeros(len(labels)), np.zeros(len(labels))
        ax.use_sticky_edges = False  # room for a mark at the end of the longest bar
        for (name, shares), colour in zip(parts.items(), OKABE_ITO, strict=False):
            values = np.array([shares.get(label) or 0.0 for label in labels])
            start = np.where(values < 0, left, right)
            ax.barh(rows, values, left=start, height=0.7, color=colour, alpha=0.85, label=name)
            left, right = left + np.minimum(values, 0), right + np.maximum(values, 0)
        whole = [totals[label] for label in labels]
        ax.plot(whole, rows, "D", color="#000000", markersize=3.2, label="whole error")
        _label_rows(ax, labels, "error (% of the real figure)")
        _legend(figure, ax, title)
        return figure


def plot_point_errors(points: Mapping[str, Errors], names: Sequence[str], title: str) -> Figure:
    """A row per point with a mark per figure of ``names``."""
    labels = list(points)
    with stacked_panels(1, ROW_HEIGHT * len(labels) + 1.0, "") as (figure, (ax,)):
        looks = zip(names, colours(len(names)), MARKERS, strict=False)
        for name, colour, marker in looks:
            known = [(error, row) for row, label in enumerate(labels) if (error := points[label].get(name)) is not None]
            x, y = zip(*known, strict=True) if known else ((), ())
            ax.plot(x, y, marker, color=colour, label=name, markersize=4.5, alpha=0.85)
        _label_rows(ax, labels, "error (% of the real figure)")
        _legend(figure, ax, title)
        return figure


def _label_rows(ax: Any, labels: Sequence[str], xlabel: str) -> None:
    short = [label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 3]}..." for label in labels]
    ax.set_yticks(np.arange(len(labels)), short)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.axvline(0, color="#000000", linewidth=0.7)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel(xlabel)
    low, high = ax.get_xlim()
    ax.set_xlim(min(low, -1.0), max(high, 1.0))


def _legend(figure: Any, ax: Any, title: str) -> None:
    handles, names = ax.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2, title=title or None, title_fontsize=8)
