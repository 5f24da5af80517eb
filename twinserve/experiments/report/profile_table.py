"""A profile on the screen: what was measured, by kind of step."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinserve.experiments.files.parquet import check_columns, read_columns, readable
from twinserve.experiments.report.narrow import narrow_table
from twinserve.experiments.store.profile_store import PROFILE
from twinserve.sched_core.features import StepFeatures

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

NEEDED = ("source", "family", "shape_id", "interval_ns", *StepFeatures._fields)
NUMBERS = ("shapes", "steps", "tokens", "device ms", "step ms", "host gap us")


def read_profile(folder: Path) -> pd.DataFrame:
    """The steps of a finished profile, with ``host_gap_ns``; what no device timed is NaN.

    Raises:
        ConfigError: the file is missing or damaged.
    """
    import pandas as pd

    path = folder / PROFILE
    with readable(path, "profile again with --force"):
        columns = read_columns(path)
    check_columns(columns, (*NEEDED, "device_ns"), NEEDED, path)
    steps = pd.DataFrame(columns)
    steps["device_ns"] = steps["device_ns"].astype("float64")
    steps["host_gap_ns"] = steps["interval_ns"] - steps["device_ns"]
    return steps


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
        *("-" if isnan(value) else f"{value:.{digits}f}" for value, digits in medians),
    ]
