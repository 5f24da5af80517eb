"""Replays the recorded plans with other step times, and moves the recorded times accordingly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinserve.run_core.record import Column, Columns, RunRecord
from twinserve.sim_backend.arrays import Floats


class TimeWarp:
    """Maps recorded times (ns) to those of a run whose step ``i`` takes ``durations[i]``.

    Within a step time passes evenly, between steps (an idle engine) as recorded. Arrivals move with the steps around
    them: a wait for two steps stays a wait for these two, and no error piles up from one request to the next. With
    the recorded durations it is the identity, exactly.
    """

    __slots__ = ("_after", "_before")

    def __init__(self, starts: Column, ends: Column, durations: Column) -> None:
        start, end, duration = (np.asarray(column, dtype=np.float64) for column in (starts, ends, durations))
        idle = start - np.append(0.0, end)[: len(start)]
        new_end = np.cumsum(idle + duration)
        self._before: Floats = np.append(0.0, np.column_stack((start, end)).ravel())
        self._after: Floats = np.append(0.0, np.column_stack((new_end - duration, new_end)).ravel())

    def __call__(self, times: Any) -> NDArray[np.int64]:
        """Whole nanoseconds; after the last step time passes as recorded."""
        times = np.asarray(times, dtype=np.float64)
        beyond = np.maximum(times - self._before[-1], 0.0)
        moved: NDArray[np.int64] = np.rint(np.interp(times, self._before, self._after) + beyond).astype(np.int64)
        return moved


def warped(record: RunRecord, durations: Column) -> RunRecord:
    """``record`` with every time moved; its plans, tokens and order stay."""
    warp = TimeWarp(record.steps["start_ns"], record.steps["end_ns"], durations)
    return replace(
        record,
        requests=_warp_columns(record.requests, warp),
        steps=_warp_columns(record.steps, warp, but=("device_ns",)),
        tokens=_warp_columns(record.tokens, warp),
        end_ns=int(warp(record.end_ns)),
    )


def _warp_columns(columns: Mapping[str, Column], warp: TimeWarp, but: tuple[str, ...] = ()) -> Columns:
    return {
        name: _warp_column(column, warp) if name.endswith("_ns") and name not in but else column
        for name, column in columns.items()
    }


def _warp_column(column: Column, warp: TimeWarp) -> list[int | None]:
    """Times that never came stay None."""
    moved = iter(warp([time for time in column if time is not None]).tolist())
    return [None if time is None else next(moved) for time in column]
