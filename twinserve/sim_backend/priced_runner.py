"""``PricedRunner``: a simulated device for the driver in real time."""

from __future__ import annotations

from collections.abc import Iterable

from twinserve.run_core.clock import Clock
from twinserve.run_core.wall_clock_driver import StepOutput
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes
from twinserve.sched_core.features import step_features
from twinserve.sched_core.plan import StepPlan
from twinserve.sched_core.requests.spec import RequestSpec
from twinserve.sim_backend.cost_model import CostModel


class PricedRunner:
    """Takes as long over each step as ``cost_model`` says, on ``clock``; token ids are made up.

    The clock is the one of the run: a step is over when its time has passed since it was launched.
    """

    def __init__(self, cost_model: CostModel, clock: Clock, capture_sizes: CaptureSizes = NO_GRAPHS) -> None:
        self._cost_model = cost_model
        self._clock = clock
        self._capture_sizes = capture_sizes
        self._end_ns = 0

    def launch(self, plan: StepPlan) -> None:
        now = self._clock.now()
        self._end_ns = now + self._cost_model.step_ns(step_features(plan, self._capture_sizes), now)

    def collect(self) -> StepOutput:
        while self._clock.now() < self._end_ns:  # arrivals end waits, but not steps
            self._clock.wait_until(self._end_ns)
        return StepOutput(token_ids=None)

    def expect(self, spec: RequestSpec) -> None: ...

    def release(self, request_ids: Iterable[int]) -> None: ...
