"""The picture of the note's published and simulated figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from twinserve.experiments.plots.style import MARKERS, OKABE_ITO, plain_numbers, stacked_panels
from twinserve.experiments.reproduce.comparison import Comparison
from twinserve.experiments.reproduce.note import MAX_ERROR
from twinserve.experiments.reproduce.note_table import LABELS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_note(comparisons: Sequence[Comparison]) -> Figure:
    """Two panels: simulated over published values on the diagonal, and the error of every figure in percent."""
    with stacked_panels(2, 2.6, "The note's benchmark, simulated") as (figure, (values, errors)):
        for index, comparison in enumerate(comparisons):
            look = {"color": OKABE_ITO[index], "marker": MARKERS[index], "linestyle": "none"}
            _draw(values, errors, comparison, look, shift=(index - (len(comparisons) - 1) / 2) * 0.15)
        _finish_values(values)
        _finish_errors(errors)
        return figure


def _draw(values: Any, errors: Any, comparison: Comparison, look: dict[str, Any], shift: float) -> None:
    latencies = [name for name in comparison.published if name != "duration"]
    published = [comparison.published[name] for name in latencies]
    simulated = [comparison.simulated[name] for name in latencies]
    values.plot(published, simulated, label=comparison.run, **look)
    percent = [100 * (comparison.simulated[name] / comparison.published[name] - 1) for name in LABELS]
    errors.plot([index + shift for index in range(len(LABELS))], percent, **look)


def _finish_values(axis: Any) -> None:
    limits = (25, 120_000)
    axis.plot(limits, limits, color="#888888", linewidth=0.8, zorder=0)
    axis.set(xscale="log", yscale="log", xlim=limits, ylim=limits)
    axis.set(xlabel="measured on an RTX 4090 (ms)", ylabel="simulated (ms)")
    plain_numbers(axis.xaxis)
    plain_numbers(axis.yaxis)
    axis.legend(loc="lower right")


def _finish_errors(axis: Any) -> None:
    bound = 100 * MAX_ERROR
    axis.axhspan(-bound, bound, color="#eeeeee", zorder=0)
    axis.set(ylabel="error (%)", ylim=(-1.3 * bound, 1.3 * bound))
    axis.set_xticks(range(len(LABELS)), [label.removesuffix(" ms").removesuffix(" s") for label in LABELS.values()])
    axis.tick_params(axis="x", rotation=60)
