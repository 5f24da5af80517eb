"""The benchmark's tables: every row beside its limit and published figures, and steps taken apart."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from experiments.bench.published import ENGINES
from experiments.bench.report import BenchReport, Figures, Row, StepParts

PART_TITLES = {
    "gemm": "GEMM",
    "attention": "attention",
    "pointwise": "pointwise",
    "head": "head",
    "sampling": "sampling",
    "other": "other",
}
MISSING = "-"


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


def rows_table(rows: Sequence[Row]) -> Table:
    """One line per row, its unit and notes below; a published engine has a column where it has a figure."""
    engines = [engine for engine in ENGINES if any(engine in row.published for row in rows)]
    table = Table(caption="limit: every step at the roofline of the measured peaks, and a host that costs nothing")
    table.add_column("row")
    for name in ("twinserve", "limit", *engines):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        values = (row.figures, row.limit, *(row.published.get(engine, {}) for engine in engines))
        table.add_row(_row_heading(row), *(figures_text(value, row.figures) for value in values))
    return table


def _row_heading(row: Row) -> Text:
    text = Text(row.title)
    for more in (row.unit, row.reason or row.note):
        text.append(f"\n  {more}" if more else "", style="dim")
    return text


def figures_text(figures: Figures, names: Figures) -> str:
    """The figures called ``names`` with slashes between; one that is the same for all is given once."""
    values = [figures.get(name) for name in names]
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    if len(values) > 1 and len(known) == len(values) and len(set(known)) == 1:
        return number(known[0])
    return " / ".join(number(value) for value in values)


def number(value: float | None) -> str:
    """Three significant digits or all before the point, thousands apart; a dash for what is unknown."""
    if value is None:
        return MISSING
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{decimals}f}"


def breakdown_table(steps: Sequence[StepParts]) -> Table:
    """One column per step, one line per part: measured ms, floor ms and their ratio."""
    table = Table(title="Where a step's time goes: ms / floor ms (ratio)", caption=_others(steps))
    table.add_column("part")
    for step in steps:
        table.add_column(_heading(step), justify="right")
    for part, title in PART_TITLES.items():
        table.add_row(title, *(_part_text(step, part) for step in steps))
    table.add_row("host gap", *(number(step.host_gap_ms) for step in steps))
    table.add_section()
    table.add_row("sum", *(number(step.sum_ms) for step in steps))
    table.add_row("whole step", *(_whole_text(step) for step in steps))
    return table


def _others(steps: Sequence[StepParts]) -> str:
    """The longest kernels that are of no known part."""
    kernels = (kernel for step in steps for kernel in step.kernels if kernel["part"] == "other")
    names = dict.fromkeys(str(kernel["name"]) for kernel in sorted(kernels, key=lambda kernel: -kernel["ms"]))
    return "other: " + ", ".join(name[:40] for name in list(names)[:3]) if names else ""


def _heading(step: StepParts) -> str:
    return f"{step.title}\n{step.reason or step.launch}"


def _part_text(step: StepParts, part: str) -> str:
    if step.parts is None:
        return MISSING
    return _with_floor(step.parts.get(part, 0.0), (step.floors or {}).get(part))


def _whole_text(step: StepParts) -> str:
    if step.step_ms is None:
        return MISSING
    return _with_floor(step.step_ms, sum(step.floors.values()) if step.floors else None)


def _with_floor(measured: float, floor: float | None) -> str:
    return number(measured) if not floor else f"{number(measured)} / {number(floor)} ({measured / floor:.2f})"
