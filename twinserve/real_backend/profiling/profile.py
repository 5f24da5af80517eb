"""All that one profile measures, in order, a piece at a time: the caller stops it, stores it and goes on with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass

import numpy as np

from twinserve.real_backend.engine_loader import LoadedEngine
from twinserve.real_backend.profiling.engine_runs import EngineRuns
from twinserve.real_backend.profiling.grid import make_grid
from twinserve.real_backend.profiling.measurement import PROFILE_COLUMNS, ProfileRow
from twinserve.real_backend.profiling.plans import Placer
from twinserve.real_backend.profiling.shape import Limits, Shape
from twinserve.real_backend.profiling.visits import STEPS_PER_VISIT, Visits
from twinserve.run_core.clock import WallClock
from twinserve.sched_core.policies.registry import Policies


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A visit to a shape, or an engine run (``visit`` 0): what is measured at once, and repeated if interrupted."""

    shape_id: int
    visit: int

    @property
    def first(self) -> tuple[int, int]:
        """(shape_id, repeat) of its first row."""
        return self.shape_id, self.visit * STEPS_PER_VISIT


class Profile:
    """The measurements of one engine. ``num_visits`` is how often each shape is measured (STEPS_PER_VISIT steps each
    time); ``density`` scales the number of drawn shapes and how long engine runs are refilled.
    """

    columns = PROFILE_COLUMNS

    def __init__(
        self,
        loaded: LoadedEngine,
        make_policies: Callable[[], Policies],
        *,
        seed: int,
        num_visits: int,
        density: float,
    ) -> None:
        self.facts = loaded.facts
        self._seed = seed
        self._num_visits = num_visits
        limits, runner = Limits.of(loaded.scheduler), loaded.runner
        self.grid = make_grid(limits, runner.capture_sizes, seed=seed, density=density)
        self._visits = Visits(runner, Placer(limits, (seed, 1)), WallClock())
        self._engine = EngineRuns(runner, loaded.scheduler, make_policies, seed=seed, density=density)
        self.pieces = tuple(self._pieces())

    @property
    def max_repeats(self) -> int:
        """Measured steps of a shape when nothing cuts the profile short."""
        return self._num_visits * STEPS_PER_VISIT

    def measure(self, done: Collection[tuple[int, int]] = ()) -> Generator[list[ProfileRow], None, None]:
        """The rows of each piece whose first (shape_id, repeat) is not in ``done``.

        Raises:
            EngineError: the device is out of memory or fails.
        """
        for piece in self.pieces:
            if piece.first not in done:
                yield self._measure(piece)

    def estimate_s(self, done: Collection[tuple[int, int]] = ()) -> float:
        """About how long ``measure`` takes: from the smallest and the largest step, by tokens; without engine runs."""
        shapes = self.grid.shapes
        if not shapes:
            return 0.0
        ends = [min(shapes, key=_size), max(shapes, key=_size)]
        tokens, seconds = [_size(shape) for shape in ends], [self._seconds(shape) for shape in ends]
        visits = [_size(shapes[piece.shape_id]) for piece in self.pieces if self._is_due_visit(piece, done)]
        return float(np.interp(visits, tokens, seconds).sum()) if visits else 0.0

    def _pieces(self) -> Iterator[Piece]:
        """The engine runs come when half of the shapes were visited: by then the kernels are compiled, and a device on
        which the time is too short for all shapes has still run them.
        """
        count = len(self.grid.shapes)
        visits = [
            Piece(shape_id=shape_id, visit=visit)
            for visit in range(self._num_visits)
            for shape_id in np.random.default_rng((self._seed, visit)).permutation(count).tolist()
        ]
        yield from visits[: count // 2]
        yield from (Piece(shape_id=count + number, visit=0) for number in range(len(self._engine.runs)))
        yield from visits[count // 2 :]

    def _measure(self, piece: Piece) -> list[ProfileRow]:
        number = piece.shape_id - len(self.grid.shapes)
        if number >= 0:
            return self._engine.measure(number, piece.shape_id)
        return self._visits.measure(self.grid.shapes[piece.shape_id], piece.shape_id, piece.visit)

    def _is_due_visit(self, piece: Piece, done: Collection[tuple[int, int]]) -> bool:
        return piece.shape_id < len(self.grid.shapes) and piece.first not in done

    def _seconds(self, shape: Shape) -> float:
        """Of a visit, the second time: the first may compile kernels."""
        self._visits.measure(shape, 0, 0)
        interval_ns = [row[-2] for row in self._visits.measure(shape, 0, 0)]
        return sum(interval_ns) / 1e9 * (STEPS_PER_VISIT + 1) / STEPS_PER_VISIT


def _size(shape: Shape) -> int:
    return shape.num_tokens
