"""The driver in real time: the same boundary as the simulator's, with a runner at work between two boundaries.

It decides nothing. One reading of the clock stands for a whole boundary: finish the step, tell the clients, send
what is due, begin the next step. Recording waits until the next step runs on the device, and overlaps with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from twinserve.run_core.clock import Clock
from twinserve.run_core.garbage import collected_on_demand
from twinserve.run_core.interrupts import interrupts_deferred
from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.session import Session
from twinserve.sched_core.plan import Idle, Ints, StepPlan
from twinserve.sched_core.requests.spec import RequestSpec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepOutput:
    """``token_ids`` of the plan's sampling rows in its order, None where they are made up.

    ``device_ns`` is None where no device is timed.
    """

    token_ids: Ints | None
    device_ns: int | None = None


class Runner(Protocol):
    """Runs plans, one at a time. ``launch`` and ``collect`` raise RunStopped when the step cannot run."""

    def launch(self, plan: StepPlan) -> None:
        """Starts the step; returns while the device may still be at work."""

    def collect(self) -> StepOutput:
        """Waits for the step that was launched."""

    def expect(self, spec: RequestSpec) -> None:
        """``spec`` was accepted and may be in a later plan: what can be done for it ahead may be done from now on."""

    def release(self, request_ids: Iterable[int]) -> None:
        """Forgets requests that have finished; unknown ids are ignored."""


def run_in_real_time(session: Session, runner: Runner, clock: Clock) -> RunOutcome:
    """Serve the session's requests until its source is exhausted.

    Whatever is raised ends the run: the step in flight is cancelled, and the outcome holds what had finished, and the
    error. Ctrl-C takes effect between two steps.
    """
    session.on_accepted, session.on_ended, session.on_change = runner.expect, runner.release, clock.wake
    with interrupts_deferred(session.interrupt), collected_on_demand() as collect_garbage:
        try:
            _serve(session, runner, clock, collect_garbage)
            session.flush()
        except (Exception, KeyboardInterrupt) as error:
            session.cancel(clock.now())
            return session.outcome(error)
    return session.outcome()


def _serve(session: Session, runner: Runner, clock: Clock, collect_garbage: Callable[[], None]) -> None:
    now = clock.now()
    while not session.is_over:
        step = session.begin(now)
        if not isinstance(step, Idle):
            output = _execute(session, runner, step, collect_garbage)
            now = clock.now()
            session.finish(step, output.token_ids, now, output.device_ns)
        elif not session.is_over:
            session.flush()
            clock.wait_until(step.wake_at)
            now = clock.now()


def _execute(session: Session, runner: Runner, step: StepPlan, collect_garbage: Callable[[], None]) -> StepOutput:
    runner.launch(step)
    session.engine.settle()
    session.flush()
    collect_garbage()
    return runner.collect()
