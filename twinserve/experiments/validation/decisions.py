"""Compares two decision logs byte for byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinserve.experiments.files.parquet import DECISION_COLUMNS, HIT_COLUMNS
from twinserve.run_core.record import Columns
from twinserve.sched_core.plan import Ints, StepPlan

COLUMNS = ("step_id", *DECISION_COLUMNS, *HIT_COLUMNS)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first plan in which two logs differ, and the first column there; None where a log has no such plan."""

    step: int
    column: str
    real: Any
    simulated: Any

    def describe(self) -> str:
        return f"step {self.step}, {self.column}: real {_short(self.real)}, simulated {_short(self.simulated)}"


def decision_columns(plans: Iterable[StepPlan]) -> Columns:
    """Plans as the columns of ``decisions.parquet``."""
    kept = list(plans)
    columns: Columns = {"step_id": [plan.step_id for plan in kept]}
    for name in COLUMNS[1:]:
        columns[name] = [np.asarray(getattr(plan, name), dtype=np.int64) for plan in kept]
    return columns


def encode(log: Columns) -> list[bytes]:
    """Every plan as bytes: its step id, then each column's length and values, as 64-bit integers.

    A log of an earlier version has no columns of hits.
    """
    rows = zip(*(log[name] for name in COLUMNS if name in log), strict=True)
    return [_encode_plan(step_id, lists) for step_id, *lists in rows]


def common(log: Columns, other: Columns) -> Columns:
    """The columns of ``log`` that ``other`` has too."""
    return {name: log[name] for name in COLUMNS if name in log and name in other}


def digest_of(plans: Iterable[bytes]) -> str:
    """sha256 of a whole log."""
    total = hashlib.sha256()
    for plan in plans:
        total.update(plan)
    return total.hexdigest()


def first_difference(real: Columns, simulated: Columns) -> Difference | None:
    """Where two logs part; None when they are equal byte for byte in the columns that both have."""
    real, simulated = common(real, simulated), common(simulated, real)
    ours, theirs = encode(real), encode(simulated)
    for step, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return _difference(step, real, simulated)
    if len(ours) == len(theirs):
        return None
    step = min(len(ours), len(theirs))
    values = [log["step_id"][step] if step < len(log["step_id"]) else None for log in (real, simulated)]
    return Difference(step, "step_id", *values)


def _difference(step: int, real: Columns, simulated: Columns) -> Difference:
    column = next(name for name in real if not np.array_equal(real[name][step], simulated[name][step]))
    values = (np.asarray(log[column][step]).tolist() for log in (real, simulated))
    return Difference(step, column, *values)


def _encode_plan(step_id: int, lists: Sequence[Ints]) -> bytes:
    parts = [[step_id], *(part for values in lists for part in ([len(values)], values))]
    return np.concatenate(parts).astype("<i8").tobytes()


def _short(value: Any, most: int = 8) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list) and len(value) > most:
        return f"[{', '.join(map(str, value[:most]))}, ... {len(value)} in all]"
    return str(value)
