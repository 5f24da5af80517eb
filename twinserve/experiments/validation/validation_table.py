"""The tables of one validation: parity, figures and steps."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from twinserve.experiments.report.narrow import narrow_table
from twinserve.experiments.report.numbers import fixed, plain_figure, signed
from twinserve.experiments.validation.validate import NO_LOG, Validation

RATE_LABELS = {
    "duration": "duration (s)",
    "request_throughput": "requests/s",
    "output_throughput": "output tokens/s",
    "total_token_throughput": "tokens/s",
}


def parity_lines(validation: Validation) -> Iterator[str]:
    """Parity and its controls, a line each."""
    parity = validation.parity
    if parity is None:
        yield f"parity      {NO_LOG}"
        return
    yield f"parity      {'' if parity.equal else 'DIFFERS at '}{parity.describe()}"
    for control in validation.controls:
        yield f"control     {control.name}: {control.outcome} ({control.detail})"


def figure_table(validation: Validation) -> Table:
    """Real, simulated and error of every figure, and the error's parts."""
    mean = validation.mean_abs_error_percent
    sum_of_parts = "error = step time + host gap + feedback"
    caption = sum_of_parts if mean is None else f"{sum_of_parts}; mean absolute error {mean:.1f} %"
    title = f"{validation.run.config.name}: real against simulated with {validation.cost_model}"
    headings = ("real", "simulated", "error %", "step time", "host gap", "feedback")
    table = narrow_table(("figure",), headings, title, caption)
    previous = "rates"
    for name, figure in validation.figures.items():
        group = "rates" if name in RATE_LABELS else name.split("_")[1]
        if group != previous:
            table.add_section()
        previous = group
        parts = (figure.step_time_percent, figure.host_gap_percent, figure.feedback_percent)
        values = (plain_figure(figure.real), plain_figure(figure.simulated))
        table.add_row(figure_label(name), *values, *(signed(error) for error in (figure.error_percent, *parts)))
    return table


def step_table(validation: Validation) -> Table:
    """Errors over the recorded steps, by graph mode and part."""
    headings = ("count", "measured ms", "predicted ms", "bias %", "MAPE %", "p95 %")
    title = "Predicted against measured steps, over the recorded plans"
    table = narrow_table(("steps", "part"), headings, title)
    for mode, parts in validation.steps.items():
        for part, error in parts.items():
            sums = (f"{error.measured_ms:.1f}", f"{error.predicted_ms:.1f}")
            percents = (signed(error.bias_percent), fixed(error.mape_percent), fixed(error.p95_percent))
            table.add_row(mode, part, str(error.num_steps), *sums, *percents)
        table.add_section()
    return table


def figure_label(name: str) -> str:
    """``p99_ttft_ms`` as ``TTFT p99 (ms)``."""
    if name in RATE_LABELS:
        return RATE_LABELS[name]
    statistic, latency, _ = name.split("_")
    return f"{latency.upper()} {statistic} (ms)"
