"""Reads a profile folder: its steps as a table or as checked columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinserve.experiments.files.names import PROFILE
from twinserve.experiments.files.parquet import check_columns, read_columns, readable
from twinserve.experiments.store.step_columns import StepColumns, read_step_columns
from twinserve.sched_core.features import StepFeatures

if TYPE_CHECKING:
    import pandas as pd

NEEDED = ("source", "family", "shape_id", "interval_ns", *StepFeatures._fields)
"""Columns of every profile; none of them holds nulls."""


def is_profile_folder(folder: Path) -> bool:
    """Whether ``folder`` holds a complete profile."""
    return (folder / PROFILE).is_file()


def read_profile(folder: Path) -> pd.DataFrame:
    """The steps of a complete profile, with ``host_gap_ns``; what no device timed is NaN.

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


def read_profile_steps(folder: Path, needed: Sequence[str]) -> StepColumns:
    """The steps of a complete profile, which must have the columns ``needed``.

    Raises:
        ConfigError: the file is missing or damaged, or lacks a column.
    """
    return read_step_columns(folder / PROFILE, needed)
