"""A profile as a picture: what a step costs the device, and what the host adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from twinserve.experiments.plots.style import MARKERS, OKABE_ITO, plain_numbers, point_legend, stacked_panels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MODES = {"decode": "decode graph", "mixed": "mixed graph", "eager": "eager"}


def plot_profile(steps: pd.DataFrame, manifest: Mapping[str, Any]) -> Figure:
    """Device time against tokens by kind of launch, and host gap against rows by what the host had to do.

    Where no device was timed, one panel with the whole interval.
    """
    timed = bool(steps["device_ns"].notna().any())
    title = f"{str(manifest.get('model')).rsplit('/', 1)[-1]}, {manifest.get('device')}"
    with stacked_panels(2 if timed else 1, 2.2, title) as (figure, axes):
        _draw_device(axes[0], steps, "device_ns" if timed else "interval_ns")
        if timed:
            _draw_host(axes[1], steps)
        return figure


def _draw_device(axis: Any, steps: pd.DataFrame, column: str) -> None:
    for index, (mode, label) in enumerate(MODES.items()):
        chosen = steps[steps["graph_mode"] == mode]
        _scatter(axis, chosen["num_tokens"], chosen[column] / 1e6, label, index)
    axis.set(xscale="log", yscale="log", xlabel="tokens in the step")
    axis.set_ylabel("device time (ms)" if column == "device_ns" else "step interval (ms)")
    plain_numbers(axis.xaxis)
    plain_numbers(axis.yaxis)
    point_legend(axis, "upper left")


def _draw_host(axis: Any, steps: pd.DataFrame) -> None:
    on_runner, starts = steps["source"] == "runner", steps["num_started"] > 0
    kinds = {
        "runner": on_runner & ~starts,
        "runner, rows start": on_runner & starts,
        "engine loop": ~on_runner,
    }
    for index, (label, chosen) in enumerate(kinds.items()):
        _scatter(axis, steps["num_rows"][chosen], steps["host_gap_ns"][chosen] / 1e3, label, index)
    axis.set(xlabel="rows in the step", ylabel="host gap (us)")
    axis.set_ylim(0, 1.3 * steps["host_gap_ns"].quantile(0.995) / 1e3)
    point_legend(axis, "upper left", ncols=3, columnspacing=0.8)


def _scatter(axis: Any, x: Any, y: Any, label: str, index: int) -> None:
    if len(x):
        look = {"color": OKABE_ITO[index], "marker": MARKERS[index], "markersize": 2, "alpha": 0.5}
        axis.plot(x, y, label=label, linestyle="none", markeredgewidth=0, **look)
