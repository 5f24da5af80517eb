"""The picture of a calibration: predicted against measured step times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from twinserve.experiments.calibrate.outcome import Outcome
from twinserve.experiments.plots.style import MARKERS, OKABE_ITO, plain_numbers, point_legend, stacked_panels
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.fitting.accuracy import Judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {mode: (OKABE_ITO[index], MARKERS[index]) for index, mode in enumerate(GraphMode)}
WIDEST = 30.0  # percent


def plot_outcome(outcome: Outcome) -> Figure:
    """Three panels over the steps that no fit has seen: predicted against measured, error by tokens, errors counted."""
    judged, calibration = outcome.judged, outcome.calibration
    title = f"{calibration.model.rpartition('/')[2]} on {calibration.gpu.removeprefix('NVIDIA ')}, steps not fitted"
    with stacked_panels(3, 1.9, title) as (figure, (times, by_tokens, counted)):
        limit = _limit(judged)
        for mode in calibration.modes:
            part = judged.of(mode)
            if len(part.steps):
                _draw(times, by_tokens, counted, part, mode, limit)
        _finish(times, by_tokens, counted, judged, limit)
        return figure


def _draw(times: Any, by_tokens: Any, counted: Any, part: Judged, mode: GraphMode, limit: float) -> None:
    colour, marker = COLOURS[mode]
    look = {"color": colour, "marker": marker, "linestyle": "none", "markersize": 2.2, "alpha": 0.5, "mew": 0}
    error = part.error()
    label = str(mode) if error is None else f"{mode}: MAPE {error.mape_percent:.1f} %, bias {error.bias_percent:+.1f} %"
    times.plot(part.steps.judged_ns / 1e6, part.predicted_ns / 1e6, label=label, **look)
    shown = np.clip(part.percent, -limit, limit)
    by_tokens.plot(part.steps.features["num_tokens"], shown, **look)
    counted.hist(shown, bins=np.linspace(-limit, limit, 61), histtype="step", color=colour, linewidth=1.0)


def _limit(judged: Judged) -> float:
    """Where the axes of errors end: beyond nearly all of them; the others are drawn at the edge."""
    if len(judged.steps) == 0:
        return WIDEST
    return float(min(max(1.5 * np.percentile(np.abs(judged.percent), 98), 2.0), WIDEST))


def _finish(times: Any, by_tokens: Any, counted: Any, judged: Judged, limit: float) -> None:
    if len(judged.steps):
        both = np.concatenate([judged.steps.judged_ns, judged.predicted_ns]) / 1e6
        ends = (both.min() / 1.2, both.max() * 1.2)
        times.plot(ends, ends, color="#888888", linewidth=0.8, zorder=0)
        times.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        plain_numbers(times.xaxis)
        plain_numbers(times.yaxis)
        point_legend(times, "upper left")
        by_tokens.set(xscale="log")
        by_tokens.set_xlim(
            judged.steps.features["num_tokens"].min() / 1.2, judged.steps.features["num_tokens"].max() * 1.2
        )
        plain_numbers(by_tokens.xaxis)
    times.set(xlabel="measured (ms)", ylabel="predicted (ms)")
    by_tokens.axhline(0, color="#888888", linewidth=0.8, zorder=0)
    by_tokens.set(xlabel="tokens in the step", ylabel="error (%)", ylim=(-1.05 * limit, 1.05 * limit))
    counted.set(xlabel="error (%)", ylabel="steps", xlim=(-1.05 * limit, 1.05 * limit))
