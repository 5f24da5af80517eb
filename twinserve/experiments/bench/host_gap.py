"""The host gap of decode steps: the time in which the device waits for the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twinserve.run_core.record import Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class GapFigures:
    """Gaps (ms) of the ``num_steps`` decode steps with ``num_rows`` rows, the most that a run reached."""

    num_rows: int
    num_steps: int
    median_ms: float
    mean_ms: float


def host_gap(steps: Columns) -> GapFigures | None:
    """From the columns of steps.parquet; None where no device was timed or no step was of decodes only."""
    timed = np.array([span is not None for span in steps["device_ns"]], dtype=bool)
    num_rows, num_tokens = np.array(steps["num_rows"]), np.array(steps["num_tokens"])
    chosen = timed & (num_rows == num_tokens)
    if not chosen.any():
        return None
    most = int(num_rows[chosen].max())
    chosen &= num_rows == most
    device_ns = np.array([span or 0 for span in steps["device_ns"]])
    gaps = (np.array(steps["end_ns"]) - np.array(steps["start_ns"]) - device_ns)[chosen] / 1e6
    return GapFigures(
        num_rows=most, num_steps=len(gaps), median_ms=float(np.median(gaps)), mean_ms=float(np.mean(gaps))
    )
