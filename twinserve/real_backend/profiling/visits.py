"""Measures shapes on the runner alone, one visit at a time."""

from __future__ import annotations

from twinserve.real_backend.launch.runner import ModelRunner
from twinserve.real_backend.profiling.measurement import ProfileRow, profile_row
from twinserve.real_backend.profiling.plans import PlacedShape, Placer
from twinserve.real_backend.profiling.shape import Shape
from twinserve.run_core.clock import Clock
from twinserve.sched_core.features import step_features
from twinserve.sched_core.plan import StepPlan

STEADY_STEPS = 2
STEPS_PER_VISIT = STEADY_STEPS + 1
"""Measured steps of a visit; one more goes before them unmeasured."""
MOST_STARTED = 4


class Visits:
    """A visit to a shape: a step that starts its requests and warms up, STEADY_STEPS steps that start none, and one
    into which a few of the rows enter anew, since that is work for the host.

    Visits to different shapes alternate, so that a slow drift of the device's clock favours no shape.
    """

    def __init__(self, runner: ModelRunner, placer: Placer, clock: Clock) -> None:
        self._runner = runner
        self._placer = placer
        self._clock = clock
        self._num_steps = 0

    def measure(self, shape: Shape, shape_id: int, visit: int) -> list[ProfileRow]:
        """STEPS_PER_VISIT rows. Raises EngineError when the device is out of memory or fails."""
        placed = self._placer.place(shape)
        num_started = min(1 + shape_id % MOST_STARTED, len(shape.rows))
        plans = [self._plan(placed, started) for started in (len(shape.rows), *[0] * STEADY_STEPS, num_started)]
        try:
            self._run(plans[0])
            times = [self._run(plan) for plan in plans[1:-1]]
            self._runner.release(placed.request_ids[-num_started:])
            times.append(self._run(plans[-1]))
        finally:
            self._runner.release(placed.request_ids)
        first = visit * STEPS_PER_VISIT
        return [
            profile_row(
                "runner", shape_id, first + step, shape.family, step_features(plan, self._runner.capture_sizes), time
            )
            for step, (plan, time) in enumerate(zip(plans[1:], times, strict=True))
        ]

    def _plan(self, placed: PlacedShape, num_started: int) -> StepPlan:
        self._num_steps += 1
        return placed.plan(self._num_steps, num_started)

    def _run(self, plan: StepPlan) -> tuple[int, int | None]:
        """Interval and device span (ns) of one step."""
        boundary = self._clock.now()
        self._runner.launch(plan)
        output = self._runner.collect()
        return self._clock.now() - boundary, output.device_ns
