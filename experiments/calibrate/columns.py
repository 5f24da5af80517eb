"""Parquet files of steps as checked columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.errors import ConfigError
from experiments.parquet import read_columns
from sched_core.dispatch import GraphMode
from sched_core.features import StepFeatures
from sim_backend.calibration.arrays import Floats, Labels

COUNTS = tuple(name for name in StepFeatures._fields if name != "graph_mode")


class StepColumns:
    """The columns of one file; every access checks what it gives.

    Raises:
        ConfigError: from everything, naming file and column.
    """

    def __init__(self, path: Path, needed: Sequence[str]) -> None:
        self.path = path
        self._columns = _read(path)
        missing = [name for name in (*needed, *COUNTS, "graph_mode") if name not in self._columns]
        if missing:
            raise ConfigError("there is no such column; is the file from this version?", file=path, key=missing[0])
        if not self._columns["graph_mode"]:
            raise ConfigError("holds no steps; measure again", file=path)

    def numbers(self, name: str) -> Floats:
        """A column of finite numbers >= 0."""
        values = self.numbers_or_none(name)
        if not np.isfinite(values).all() or (values < 0).any():
            row = int(np.flatnonzero(~np.isfinite(values) | (values < 0))[0])
            raise ConfigError(f"row {row} holds {values[row]:g}; expected 0 or more", file=self.path, key=name)
        return values

    def numbers_or_none(self, name: str) -> Floats:
        """A column of numbers, NaN where there is none."""
        try:
            return np.array([np.nan if value is None else value for value in self._columns[name]], dtype=np.float64)
        except (TypeError, ValueError):
            raise ConfigError("does not hold numbers", file=self.path, key=name) from None

    def words(self, name: str) -> Labels:
        return np.array([str(value) for value in self._columns[name]])

    def device_ns(self) -> Floats:
        """Device times, all known or (no device was timed) all NaN."""
        values = self.numbers_or_none("device_ns")
        known = np.isfinite(values)
        if known.any() and not (known.all() and (values > 0).all()):
            row = int(np.flatnonzero(~(known & (values > 0)))[0])
            raise ConfigError(
                f"row {row} has no time, others have; expected all or none", file=self.path, key="device_ns"
            )
        return values

    def counts(self) -> dict[str, Floats]:
        """The counts of ``StepFeatures``."""
        return {name: self.numbers(name) for name in COUNTS}

    def modes(self) -> Labels:
        modes = self.words("graph_mode")
        unknown = sorted(set(modes.tolist()) - set(GraphMode))
        if unknown:
            raise ConfigError(f"{unknown[0]!r} is none of {', '.join(GraphMode)}", file=self.path, key="graph_mode")
        return modes


def read_manifest(folder: Path) -> dict[str, Any]:
    """``manifest.json`` of a run or profile.

    Raises:
        ConfigError: it is missing or not a JSON object.
    """
    path = folder / "manifest.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}); it says what was measured", file=path) from error
    except ValueError as error:
        raise ConfigError(f"is not JSON ({error}); measure again", file=path) from error
    if not isinstance(data, dict):
        raise ConfigError("is not a JSON object; measure again", file=path)
    return data


def _read(path: Path) -> dict[str, list[Any]]:
    from pyarrow import ArrowException

    try:
        return read_columns(path)
    except (OSError, ArrowException) as error:
        raise ConfigError(f"cannot be read ({error}); measure again", file=path) from error
