"""The table of the note's published and simulated figures."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from twinserve.experiments.reproduce.comparison import Comparison
from twinserve.experiments.reproduce.published import FIGURES

LABELS = dict(
    zip(
        FIGURES,
        ("duration s", *(f"{latency} {p} ms" for latency in ("TTFT", "TPOT", "ITL") for p in ("p50", "p90", "p99"))),
        strict=True,
    )
)


def note_table(comparisons: Sequence[Comparison]) -> Table:
    """One row per figure; for each run the published value, the simulated one and the error in percent."""
    table = Table(title="Published / simulated (error)", caption="mean = mean absolute log error")
    table.add_column("figure")
    for comparison in comparisons:
        table.add_column(comparison.run, justify="right")
    for figure in FIGURES:
        table.add_row(LABELS[figure], *(_cell(comparison, figure) for comparison in comparisons))
    table.add_section()
    table.add_row("mean", *(f"{each.mean_abs_log_error:.2%}" for each in comparisons))
    table.add_row("largest", *(f"{each.largest_error:.1%}" for each in comparisons))
    return table


def _cell(comparison: Comparison, figure: str) -> str:
    published, simulated = comparison.published[figure], comparison.simulated[figure]
    return f"{published:.5g} / {simulated:.5g} ({simulated / published - 1:+.1%})"
