"""The simulator: one SimPy process per engine, stepping the same core as the real engine.

It decides nothing. At every step boundary it does what the real driver does, in the same order: finish the step,
tell the clients, send what is due, begin the next step. Virtual time moves only by the cost model.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import simpy

from twinserve.run_core.boundary import next_wake, send_due
from twinserve.run_core.output_script import OutputScript
from twinserve.run_core.record import Recorder, RunRecord
from twinserve.run_core.traffic import Traffic
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.events import Event, Finished
from twinserve.sched_core.features import step_features
from twinserve.sched_core.invariants import Checker
from twinserve.sched_core.plan import Idle, Ints, StepPlan, StepResult
from twinserve.sim_backend.cost_model import CostModel

_MADE_UP = StepResult()
"""What most steps report: made-up tokens, and no end that the stop rules do not know of."""

TokenSource: TypeAlias = Callable[[StepPlan], Ints | None]
Progress: TypeAlias = Callable[[int, int], None]


def simulate(
    engine: EngineCore,
    traffic: Traffic,
    cost_model: CostModel,
    recorder: Recorder,
    *,
    capture_sizes: CaptureSizes = NO_GRAPHS,
    output_lens: Mapping[int, int] | None = None,
    token_source: TokenSource | None = None,
    check: bool = False,
    on_progress: Progress | None = None,
) -> RunRecord:
    """Run ``traffic`` through ``engine`` to the end and return what happened.

    ``output_lens`` gives, per request id, the true output length where it may be below ``max_tokens``.
    ``token_source`` supplies the sampled ids of each plan (a replay); by default ids are made up. ``check`` verifies
    the engine's invariants at every step. ``on_progress`` is told (requests done, requests in all).
    """
    environment = simpy.Environment(initial_time=0)
    simulation = _Simulation(
        environment=environment,
        engine=engine,
        traffic=traffic,
        cost_model=cost_model,
        recorder=recorder,
        capture_sizes=capture_sizes,
        script=OutputScript(output_lens or {}),
        token_source=token_source,
        checker=Checker(engine) if check else None,
        on_progress=on_progress,
    )
    environment.run(until=environment.process(simulation.process()))
    return recorder.finish(int(environment.now), engine.stats())


@dataclass(slots=True, kw_only=True)
class _Simulation:
    environment: simpy.Environment
    engine: EngineCore
    traffic: Traffic
    cost_model: CostModel
    recorder: Recorder
    capture_sizes: CaptureSizes
    script: OutputScript
    token_source: TokenSource | None
    checker: Checker | None
    on_progress: Progress | None

    def process(self) -> Generator[simpy.Event, Any, None]:
        """The engine: one turn of the loop per step or idle wait."""
        environment, engine, traffic, recorder = self.environment, self.engine, self.traffic, self.recorder
        capture_sizes, step_ns = self.capture_sizes, self.cost_model.step_ns
        timeout, tell = environment.timeout, self._tell
        made_up = self.token_source is None and self.script.is_empty
        while True:
            start = environment.now
            send_due(engine, traffic, recorder, start, tell)
            step = engine.begin_step(start)
            if isinstance(step, Idle):
                due_at = next_wake(step, traffic)
                if due_at is None:
                    return
                yield timeout(self.cost_model.wake_ns(max(due_at, start)) - start)
                continue
            features = step_features(step, capture_sizes)
            yield timeout(step_ns(features, start))
            end = environment.now
            events = engine.finish_step(step.step_id, _MADE_UP if made_up else self._result(step), end)
            recorder.step(step, features, start, end)
            tell(events, end)
            if self.checker is not None:
                self.checker.after_step(step)

    def _result(self, plan: StepPlan) -> StepResult:
        return StepResult(None if self.token_source is None else self.token_source(plan), self.script.ended(plan))

    def _tell(self, events: tuple[Event, ...], now: int) -> None:
        self.recorder.events(events, now)
        num_done = self.traffic.num_done
        for event in events:
            if isinstance(event, Finished):
                self.traffic.finished(event, now)
        if self.on_progress is not None and self.traffic.num_done > num_done:
            self.on_progress(self.traffic.num_done, self.traffic.num_requests)
