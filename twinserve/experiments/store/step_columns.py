"""Reads the steps of a parquet file as checked columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.parquet import read_columns, readable
from twinserve.run_core.record import Column
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.arrays import Floats, Labels

COUNTS = tuple(name for name in StepFeatures._fields if name != "graph_mode")


class StepColumns:
    """The columns of the file at ``path``; every access checks what it gives.

    Raises:
        ConfigError: from everything, naming file and column.
    """

    def __init__(self, path: Path, columns: Mapping[str, Column], needed: Sequence[str] = ()) -> None:
        self.path = path
        self._columns = columns
        missing = [name for name in (*needed, *COUNTS, "graph_mode") if name not in columns]
        if missing:
            raise ConfigError("there is no such column; is the file from this version?", file=path, key=missing[0])
        if not len(columns["graph_mode"]):
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
        column = self._columns[name]
        if set(map(type, column)) - {int, float, type(None)}:
            raise ConfigError("does not hold numbers", file=self.path, key=name)
        return np.array([np.nan if value is None else value for value in column], dtype=np.float64)

    def texts(self, name: str) -> Labels:
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

    def check_device_within(self, interval_ns: Floats) -> None:
        """Refuses a device that worked longer than its step, of ``interval_ns``, took."""
        values = self.numbers_or_none("device_ns")
        beyond = np.flatnonzero(values > interval_ns)
        if len(beyond):
            row = int(beyond[0])
            message = f"row {row} holds {values[row]:.15g}, above its step's {interval_ns[row]:.15g} ns; measure again"
            raise ConfigError(message, file=self.path, key="device_ns")

    def counts(self) -> dict[str, Floats]:
        """The counts of ``StepFeatures``, of steps that are possible."""
        counts = {name: self.numbers(name) for name in COUNTS}
        for fewer, more in pairwise(("num_decodes", "num_rows", "num_tokens", "num_padded_tokens")):
            wrong = np.flatnonzero(counts[fewer] > counts[more])
            if len(wrong):
                few, many = (counts[name][wrong[0]] for name in (fewer, more))
                message = f"row {wrong[0]} holds {few:.15g}, above its {more} {many:.15g}; measure again"
                raise ConfigError(message, file=self.path, key=fewer)
        return counts

    def modes(self) -> Labels:
        modes = self.texts("graph_mode")
        unknown = sorted(set(modes.tolist()) - set(GraphMode))
        if unknown:
            raise ConfigError(f"{unknown[0]!r} is none of {', '.join(GraphMode)}", file=self.path, key="graph_mode")
        return modes


def read_step_columns(path: Path, needed: Sequence[str]) -> StepColumns:
    """The steps in ``path``, which must have the columns ``needed``.

    Raises:
        ConfigError: it cannot be read, lacks a column or holds no steps.
    """
    with readable(path, "measure again"):
        columns = read_columns(path)
    return StepColumns(path, columns, needed)
