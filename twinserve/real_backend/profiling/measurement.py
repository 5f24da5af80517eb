"""What is measured of a step, and the columns it is stored in."""

from __future__ import annotations

from typing import Any, TypeAlias

from twinserve.sched_core.features import StepFeatures

PROFILE_COLUMNS = ("source", "shape_id", "repeat", "family", *StepFeatures._fields, "interval_ns", "device_ns")
"""``source`` is ``runner`` for a made-up plan on the runner alone, ``engine`` for a step of the whole engine's loop.

``interval_ns`` lasts from a step's boundary to the next; ``device_ns`` is the device's part of it, None where no device
is timed. Repeats of a shape share its ``shape_id``, as do the steps of one engine run.
"""

ProfileRow: TypeAlias = tuple[Any, ...]


def profile_row(
    source: str, shape_id: int, repeat: int, family: str, features: StepFeatures, times: tuple[int, int | None]
) -> ProfileRow:
    """One measured step, in the order of PROFILE_COLUMNS; ``times`` are the interval and the device's part (ns)."""
    return (source, shape_id, repeat, family, *features, *times)
