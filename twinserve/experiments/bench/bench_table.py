"""The benchmark's tables: every row with its limit and published figures, and step breakdowns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from textwrap import fill

from rich.table import Table
from rich.text import Text

from twinserve.experiments.bench.bench_report import BenchReport, BenchRow, Figures, StepParts
from twinserve.experiments.bench.published import ENGINES
from twinserve.experiments.report.narrow import narrow_table
from twinserve.experiments.report.numbers import UNKNOWN, three_digits

PART_TITLES = {
    "gemm": "GEMM",
    "attention": "attention",
    "pointwise": "pointwise",
    "head": "head",
    "sampling": "sampling",
    "other": "other",
}
HEADING_WIDTH = 20


def peaks_line(report: BenchReport) -> str:
    """Device, model and what was measured of them, in one line."""
    what = f"{report.device['name']}, {report.model['name']}"
    backend = report.engine.get("attention_backend")
    what += f", attention {backend}" if backend else ""
    if report.peaks is None:
        return f"{what}; peaks, launches and kernels are measured on CUDA devices only"
    peaks = report.peaks
    return (
        f"{what}; matmul {peaks['matmul_tflops']:.0f} TFLOP/s, copy {peaks['copy_tbps']:.2f} TB/s, "
        f"eager launch {peaks['launch_us']:.1f} us, node of a graph {peaks['graph_node_us']:.2f} us"
    )


def rows_table(rows: Sequence[BenchRow]) -> Table:
    """A few lines per row, its figures and notes below it; a published engine has a column where it has a figure."""
    engines = [engine for engine in ENGINES if any(engine in row.published for row in rows)]
    caption = "limit: every step at the roofline of the measured peaks, a host that costs nothing"
    table = narrow_table(("row",), ("twinserve", "limit", *engines), caption=caption)
    for row in rows:
        values = (row.figures, row.limit, *(row.published.get(engine, {}) for engine in engines))
        table.add_row(row.title)
        for label, name in zip_longest(_labels(row.unit), row.figures, fillvalue=""):
            table.add_row(f"  {label}", *(three_digits(value.get(name)) for value in values))
        more = row.reason or row.note
        if more:
            table.add_row(Text(f"  {more}", style="dim"))
        table.add_section()
    return table


def _labels(unit: str) -> list[str]:
    """One for each figure: "median / mean, ms" is "median, ms" and "mean, ms"."""
    names, comma, measure = unit.rpartition(", ")
    return [f"{name}{comma}{measure}" for name in names.split(" / ")]


def figures_text(figures: Figures, names: Figures) -> str:
    """The figures called ``names`` with slashes between; one that is the same for all is given once."""
    values = [figures.get(name) for name in names]
    known = [value for value in values if value is not None]
    if not known:
        return UNKNOWN
    if len(values) > 1 and len(known) == len(values) and len(set(known)) == 1:
        return three_digits(known[0])
    return " / ".join(three_digits(value) for value in values)


def breakdown_table(steps: Sequence[StepParts]) -> Table:
    """One column per step, one line per part: measured ms, floor ms and their ratio."""
    title = "Where a step's time goes: ms / floor ms (ratio)"
    table = narrow_table(("part",), (_heading(step) for step in steps), title, _others(steps))
    for part, title in PART_TITLES.items():
        table.add_row(title, *(_part_text(step, part) for step in steps))
    table.add_row("host gap", *(three_digits(step.host_gap_ms) for step in steps))
    table.add_section()
    table.add_row("sum", *(three_digits(step.sum_ms) for step in steps))
    table.add_row("whole step", *(_whole_text(step) for step in steps))
    return table


def _others(steps: Sequence[StepParts]) -> str:
    """The longest kernels that are of no known part."""
    kernels = (kernel for step in steps for kernel in step.kernels if kernel["part"] == "other")
    names = dict.fromkeys(str(kernel["name"]) for kernel in sorted(kernels, key=lambda kernel: -kernel["ms"]))
    return "other: " + ", ".join(name[:40] for name in list(names)[:3]) if names else ""


def _heading(step: StepParts) -> str:
    return "\n".join(fill(text, HEADING_WIDTH) for text in (step.title, step.reason or step.launch))


def _part_text(step: StepParts, part: str) -> str:
    if step.parts is None:
        return UNKNOWN
    return _with_floor(step.parts.get(part, 0.0), (step.floors or {}).get(part))


def _whole_text(step: StepParts) -> str:
    if step.step_ms is None:
        return UNKNOWN
    return _with_floor(step.step_ms, sum(step.floors.values()) if step.floors else None)


def _with_floor(measured: float, floor: float | None) -> str:
    text = three_digits(measured)
    return f"{text} / {three_digits(floor)} ({measured / floor:.2f})" if floor else text
