"""Sweep folders: the summaries beside the run folders, written and read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.atomic import storage_error
from twinserve.experiments.files.csv_file import CsvRow, write_csv
from twinserve.experiments.files.names import FAILURES, SEED_SUMMARY, SUMMARY

if TYPE_CHECKING:
    import pandas as pd


def write_sweep(out: Path, rows: Sequence[CsvRow], seed_rows: Sequence[CsvRow], failures: Sequence[CsvRow]) -> None:
    """Write the summaries of a sweep into ``out``: per run, per group of seeds (if there are several), and failures.

    Raises:
        ConfigError: ``out`` cannot be written.
    """
    write_csv(out / SUMMARY, rows)
    if seed_rows:
        write_csv(out / SEED_SUMMARY, seed_rows)
    try:
        (out / FAILURES).unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(out / FAILURES, error) from error
    if failures:
        write_csv(out / FAILURES, failures)


def is_sweep_folder(folder: Path) -> bool:
    """Whether a sweep wrote its summary into ``folder``."""
    return (folder / SUMMARY).is_file()


def read_summary(folder: Path) -> pd.DataFrame:
    """The summary of the sweep in ``folder``: a row per run, dotted configuration keys and figures as columns.

    Raises:
        ConfigError: the file is no table.
    """
    import pandas as pd

    try:
        return pd.read_csv(folder / SUMMARY)
    except ValueError as error:
        raise ConfigError(f"is not a table ({error}); run the sweep again", file=folder / SUMMARY) from error
