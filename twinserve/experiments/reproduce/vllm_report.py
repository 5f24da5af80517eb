"""The table and picture of vLLM's measured and simulated requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from twinserve.experiments.plots.style import LINE_STYLES, OKABE_ITO, stacked_panels
from twinserve.experiments.reproduce.comparison import Comparison
from twinserve.experiments.reproduce.vllm_4090 import BOUNDED, COMPARED
from twinserve.experiments.reproduce.vllm_data import RequestTimes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {"ttft": "TTFT (s)", "tpot": "TPOT (ms)", "e2el": "latency (s)"}
UNITS = {"ttft": 1e3, "tpot": 1.0, "e2el": 1e3}


def vllm_table(comparison: Comparison) -> Table:
    """One row per figure of the requests that nothing was fitted to."""
    table = Table(title=comparison.run, caption="* must be within 3 %")
    table.add_column("figure")
    for name in ("measured", "simulated", "error"):
        table.add_column(name, justify="right")
    for name, measured in comparison.published.items():
        simulated = comparison.simulated[name]
        label = f"{name}{' *' if name in BOUNDED else ''}"
        table.add_row(label, f"{measured:,.1f}", f"{simulated:,.1f}", f"{simulated / measured - 1:+.1%}")
    return table


def plot_vllm(measured: RequestTimes, simulated: RequestTimes) -> Figure:
    """The distributions of TTFT, TPOT and latency, measured and simulated, in the same axes."""
    runs = {"measured": measured.of(COMPARED).latencies, "simulated": simulated.of(COMPARED).latencies}
    with stacked_panels(len(LABELS), 1.45, "vLLM, Llama-3.1-8B, RTX 4090: requests 100 to 299") as (figure, axes):
        for axis, name in zip(axes, LABELS, strict=True):
            for index, (run, latencies) in enumerate(runs.items()):
                _curve(axis, latencies[name] / UNITS[name], run, index)
            axis.set(xlabel=LABELS[name], ylabel="share of requests", ylim=(0, 1.03))
            axis.set_xlim(left=0)
        axes[0].legend(loc="lower right")
        return figure


def _curve(axis: Any, values: Any, label: str, index: int) -> None:
    levels = np.arange(1, len(values) + 1) / len(values)
    look = {"color": OKABE_ITO[index], "linestyle": LINE_STYLES[index], "drawstyle": "steps-post"}
    axis.plot(np.sort(values), levels, label=label, **look)
