"""The table of a profile: what was measured, by kind of step."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import TYPE_CHECKING, Any

from twinserve.experiments.report.narrow import narrow_table
from twinserve.experiments.report.numbers import fixed

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

NUMBERS = ("shapes", "steps", "tokens", "device ms", "step ms", "host gap us")


def profile_table(steps: pd.DataFrame, manifest: Mapping[str, Any]) -> Table:
    """One row per family and graph mode: counts, and medians over the steps of device time, interval and their gap."""
    title = f"{manifest.get('model')} on {manifest.get('device')}: medians over the steps of each kind"
    table = narrow_table(("family", "mode"), NUMBERS, title)
    for (family, mode), group in steps.groupby(["family", "graph_mode"]):
        table.add_row(str(family), str(mode), *_cells(group))
    return table


def _cells(group: pd.DataFrame) -> list[str]:
    times = (("device_ns", 1e6, 3), ("interval_ns", 1e6, 3), ("host_gap_ns", 1e3, 0))
    medians = [(group[name].median() / unit, digits) for name, unit, digits in times]
    return [
        str(group["shape_id"].nunique()),
        str(len(group)),
        f"{group['num_tokens'].min()}-{group['num_tokens'].max()}",
        *(fixed(None if isnan(value) else value, digits) for value, digits in medians),
    ]
