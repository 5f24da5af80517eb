"""Chooses the held-out measurements: about a fifth, always the same ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xxhash import xxh3_64_intdigest

from twinserve.sim_backend.arrays import Bools, Floats

ONE_IN = 5
BLOCK = 16  # neighbouring steps of a run are alike; holding out every fifth one would hold out nothing


def held_out_shapes(shapes: Sequence[tuple[float, ...]]) -> Bools:
    """About one shape in five, by a hash of its numbers: repeats of a shape are always on the same side."""
    return np.array([xxh3_64_intdigest(np.array(shape, dtype=np.float64).tobytes()) % ONE_IN == 0 for shape in shapes])


def held_out_blocks(step_ids: Floats) -> Bools:
    """Every fifth block of 16 steps of a run."""
    held_out: Bools = (step_ids // BLOCK) % ONE_IN == ONE_IN - 1
    return held_out
