"""The table of a sweep: swept keys and the main figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twinserve.experiments.report.numbers import UNKNOWN, fixed

FIGURES = ("p99_ttft_ms", "p99_tpot_ms", "p99_itl_ms", "output_throughput")


def format_sweep(rows: Sequence[Mapping[str, Any]], swept: Sequence[str]) -> str:
    """One line per run, columns aligned, swept values as they were given; empty without rows."""
    if not rows:
        return ""
    columns = [*swept, *(name for name in FIGURES if any(name in row for row in rows))]
    table = [[name.removeprefix("engine.") for name in columns]]
    figures = set(columns) - set(swept)
    table += [
        [_figure(row.get(name)) if name in figures else _given(row.get(name)) for name in columns] for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in table)


def _figure(value: Any) -> str:
    return fixed(value) if value is None or isinstance(value, float) else str(value)


def _given(value: Any) -> str:
    """A swept value as it was written: 0.01 and 0.04 stay apart."""
    return UNKNOWN if value is None else str(value)
