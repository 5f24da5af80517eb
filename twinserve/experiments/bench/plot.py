"""The picture of step breakdowns: measured time by part above its floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twinserve.experiments.bench.bench_report import StepParts
from twinserve.experiments.bench.bench_table import PART_TITLES
from twinserve.experiments.plots.style import OKABE_ITO, stacked_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GAP, _PAUSE = "host gap", "between kernels"
_MEASURED, _FLOOR = 1, 0


def plot_breakdown(steps: Sequence[StepParts], title: str) -> Figure | None:
    """One panel per step that was taken apart; None when none was."""
    shown = [step for step in steps if step.parts is not None]
    if not shown:
        return None
    with stacked_panels(len(shown), 1.15, title) as (figure, panels):
        for axis, step in zip(panels, shown, strict=True):
            _draw(axis, step)
        panels[-1].set_xlabel("ms")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, handlelength=1.2)
        return figure


def _draw(axis: Any, step: StepParts) -> None:
    colours = dict(zip((*PART_TITLES.values(), _GAP), OKABE_ITO, strict=True)) | {_PAUSE: "#bbbbbb"}
    _stack(axis, _MEASURED, _measured(step), colours, labelled=True)
    _stack(axis, _FLOOR, {PART_TITLES[part]: floor for part, floor in (step.floors or {}).items()}, colours)
    axis.set_yticks((_MEASURED, _FLOOR), ("measured", "floor"))
    axis.set_ylim(-0.5, 1.5)
    axis.grid(visible=False, axis="y")
    axis.set_title(f"{step.title} ({'eager' if step.graph_mode == 'eager' else 'graph'})", loc="left")


def _measured(step: StepParts) -> dict[str, float]:
    """Every part, what passes between kernels, and the host gap: together the whole step."""
    parts = {title: (step.parts or {}).get(part, 0.0) for part, title in PART_TITLES.items()}
    pause = max((step.step_ms or 0.0) - (step.sum_ms or 0.0), 0.0)
    return parts | {_PAUSE: pause, _GAP: step.host_gap_ms or 0.0}


def _stack(
    axis: Any, position: int, lengths: Mapping[str, float], colours: Mapping[str, str], *, labelled: bool = False
) -> None:
    left = 0.0
    for name, length in lengths.items():
        label = name if labelled else "_nolegend_"
        axis.barh(position, length, left=left, height=0.7, color=colours[name], label=label)
        left += length
