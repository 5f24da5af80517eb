"""The wall-clock driver: the same boundary as the simulator's, with a model between two boundaries.

It decides nothing. One reading of the clock stands for a whole boundary: finish the step, tell the clients, send
what is due, begin the next step. Recording waits until the next step runs on the device, and overlaps with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.loop.clock import Clock
from twinserve.real_backend.loop.garbage import collected_on_demand
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
from twinserve.sched_core.requests.spec import RequestSpec

Progress: TypeAlias = Callable[[int, int], None]
Listener: TypeAlias = Callable[[tuple[Event, ...]], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepOutput:
    """``token_ids`` of the plan's sampling rows in its order; ``device_ns`` None where no device is timed."""

    token_ids: Ints
    device_ns: int | None = None


class Runner(Protocol):
    """Runs plans on a model, one at a time. ``launch`` and ``collect`` raise EngineError when the step cannot run."""

    def launch(self, plan: StepPlan) -> None:
        """Starts the step; returns while the device may still be at work."""

    def collect(self) -> StepOutput:
        """Waits for the step that was launched."""

    def expect(self, spec: RequestSpec) -> None:
        """``spec`` was accepted and may be in a later plan: what can be done for it ahead may be done from now on."""

    def release(self, request_ids: Iterable[int]) -> None:
        """Forgets requests that have finished; unknown ids are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """A run's record; ``error`` says why it ended early, with unfinished requests in the record, else None."""

    record: RunRecord
    error: EngineError | None = None


def run_real(
    engine: EngineCore,
    runner: Runner,
    traffic: Traffic,
    recorder: Recorder,
    clock: Clock,
    *,
    capture_sizes: CaptureSizes = NO_GRAPHS,
    output_lens: Mapping[int, int] | None = None,
    check: bool = False,
    on_events: Listener | None = None,
    on_progress: Progress | None = None,
) -> RunOutcome:
    """Run ``traffic`` to its end, or until a step fails: that step is cancelled and the record holds the rest.

    ``output_lens`` gives, per request id, the output length at which the backend ends the request. ``check``
    verifies the engine's invariants at every step. ``on_events`` sees every batch of events, ``on_progress``
    (requests done, requests in all); both are called while the device works.
    """
    loop = _Loop(
        engine=engine,
        runner=runner,
        traffic=traffic,
        recorder=recorder,
        clock=clock,
        capture_sizes=capture_sizes,
        script=OutputScript(output_lens or {}),
        checker=Checker(engine) if check else None,
        on_events=on_events,
        on_progress=on_progress,
        now=clock.now(),
    )
    with collected_on_demand() as loop.collect_garbage:
        error = loop.run()
    return RunOutcome(record=recorder.finish(loop.now, engine.stats()), error=error)


@dataclass(slots=True, kw_only=True)
class _Loop:
    """``now`` is the time of the current boundary; ``late`` is the recording that waits for the device to be busy."""

    engine: EngineCore
    runner: Runner
    traffic: Traffic
    recorder: Recorder
    clock: Clock
    capture_sizes: CaptureSizes
    script: OutputScript
    checker: Checker | None
    on_events: Listener | None
    on_progress: Progress | None
    now: int
    late: list[Callable[[], None]] = field(default_factory=list)
    collect_garbage: Callable[[], None] = lambda: None

    def run(self) -> EngineError | None:
        while True:
            send_due(self.engine, self.traffic, self.recorder, self.now, self._tell, self.runner.expect)
            step = self.engine.begin_step(self.now)
            if isinstance(step, Idle):
                if not self._sleep(step):
                    return None
                continue
            try:
                output = self._execute(step)
            except EngineError as error:
                self._cancel(step)
                return error
            self._finish(step, output)

    def _execute(self, step: StepPlan) -> StepOutput:
        self.runner.launch(step)
        self.engine.settle()
        self._catch_up()
        self.collect_garbage()
        return self.runner.collect()

    def _finish(self, step: StepPlan, output: StepOutput) -> None:
        start, self.now = self.now, self.clock.now()
        result = StepResult(token_ids=output.token_ids, ended=self.script.ended(step))
        events = self.engine.finish_step(step.step_id, result, self.now)
        self.late.append(partial(self._record_step, step, start, self.now, output.device_ns))
        self._tell(events, self.now)
        if self.checker is not None:
            self.checker.after_step(step)

    def _cancel(self, step: StepPlan) -> None:
        self.now = self.clock.now()
        self._tell(self.engine.cancel_step(step.step_id, self.now), self.now)
        self._catch_up()

    def _sleep(self, idle: Idle) -> bool:
        """Waits for the next event; False when none will come."""
        self._catch_up()
        due_at = next_wake(idle, self.traffic)
        if due_at is None:
            return False
        self.clock.sleep_until(due_at)
        self.now = self.clock.now()
        return True

    def _tell(self, events: tuple[Event, ...], now: int) -> None:
        """What the next plan depends on happens now, the rest later."""
        finished = [event for event in events if isinstance(event, Finished)]
        self.runner.release(event.request_id for event in finished)
        for event in finished:
            self.traffic.finished(event, now)
        self.late.append(partial(self._report, events, now, any_finished=bool(finished)))

    def _catch_up(self) -> None:
        late, self.late = self.late, []
        for report in late:
            report()

    def _record_step(self, step: StepPlan, start: int, end: int, device_ns: int | None) -> None:
        self.recorder.step(step, step_features(step, self.capture_sizes), start, end, device_ns)

    def _report(self, events: tuple[Event, ...], now: int, *, any_finished: bool) -> None:
        self.recorder.events(events, now)
        if self.on_events is not None:
            self.on_events(events)
        if any_finished and self.on_progress is not None:
            self.on_progress(self.traffic.num_done, self.traffic.num_requests)
