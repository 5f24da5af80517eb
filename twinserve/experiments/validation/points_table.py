"""The table of a folder's validations: errors of every point."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from twinserve.experiments.report.narrow import narrow_table
from twinserve.experiments.report.numbers import fixed, signed
from twinserve.experiments.validation.run_folders import SHOWN, FolderOutcome, PointResult
from twinserve.experiments.validation.validation_table import figure_label


def point_table(outcome: FolderOutcome) -> Table:
    """One row per point: parity and errors in percent; then the mean and the largest of their sizes."""
    shown = [figure_label(name).split(" (")[0].replace(" ", "\n") for name in SHOWN]
    caption = "worst: the figure with the largest error of each point"
    title = "Error of the simulation (%)"
    table = narrow_table(("point", "parity"), (*shown, "mean\nof all", "worst"), title, caption)
    for label, point in zip(outcome.labels, outcome.points, strict=True):
        table.add_row(
            label, point.parity.replace(" ", "\n"), *(signed(point.errors.get(name)) for name in SHOWN), *_whole(point)
        )
    table.add_section()
    sizes = [[abs(point.errors[name]) for point in outcome.points if name in point.errors] for name in SHOWN]
    means = [point.mean_abs_error_percent for point in outcome.points if point.mean_abs_error_percent is not None]
    table.add_row("mean absolute", "", *(_mean(column) for column in sizes), _mean(means), "")
    table.add_row("largest", "", *(_largest(column) for column in sizes), _largest(means), "")
    return table


def _whole(point: PointResult) -> tuple[str, str]:
    if not point.errors:
        return "-", "-"
    worst = max(point.errors, key=lambda name: abs(point.errors[name]))
    mean = point.mean_abs_error_percent
    return fixed(mean), f"{figure_label(worst).split(' (')[0]}\n{signed(point.errors[worst])}"


def _mean(values: Sequence[float]) -> str:
    return fixed(sum(values) / len(values) if values else None)


def _largest(values: Sequence[float]) -> str:
    return fixed(max(values, default=None))
