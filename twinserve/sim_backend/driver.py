"""The simulator: one SimPy process per engine, stepping the same core as the real engine.

It decides nothing. At every step boundary it does what the driver in real time does, since both ask the ``Session``.
Virtual time moves only by the cost model.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import simpy

from twinserve.run_core.interrupts import interrupts_deferred
from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.session import Session
from twinserve.sched_core.plan import Idle, Ints, StepPlan
from twinserve.sim_backend.cost_model import CostModel

TokenSource: TypeAlias = Callable[[StepPlan], Ints | None]
SimulatedTime: TypeAlias = Generator[simpy.Event, Any, Any]


def simulate(session: Session, cost_model: CostModel, *, token_source: TokenSource | None = None) -> RunOutcome:
    """Serve the session's requests to the end, alone in an environment of its own.

    ``token_source`` supplies the sampled ids of each plan (a replay); by default ids are made up. Whatever is raised
    ends the run, and is in the outcome with the record. Ctrl-C takes effect between two steps.
    """
    environment = simpy.Environment(initial_time=0)
    engine = start(environment, session, cost_model, token_source=token_source)
    with interrupts_deferred(session.interrupt):
        outcome: RunOutcome = environment.run(until=engine)
    return outcome


def start(
    environment: simpy.Environment,
    session: Session,
    cost_model: CostModel,
    *,
    token_source: TokenSource | None = None,
) -> simpy.Process:
    """The engine as a process of ``environment``, whose times are integer nanoseconds; its value is the outcome.

    It ends when the session's source is exhausted. While there is nothing to run it waits for the next known event or
    for a change of the source, so that several engines, routers and clients can share one environment.
    """
    return environment.process(_serve(environment, session, cost_model, token_source))


def _serve(
    environment: simpy.Environment, session: Session, cost_model: CostModel, token_source: TokenSource | None
) -> SimulatedTime:
    alarm = Alarm(environment)
    session.on_change = alarm.ring
    timeout, step_ns, wake_ns = environment.timeout, cost_model.step_ns, cost_model.wake_ns
    begin, features, finish, flush = session.begin, session.features, session.finish, session.flush
    try:
        while True:
            start = environment.now
            step = begin(start)
            if isinstance(step, Idle):
                if session.is_over:
                    return session.outcome()
                due_at = step.wake_at
                yield from alarm.wait(None if due_at is None else wake_ns(max(due_at, start)) - start)
                if alarm.has_rung:
                    yield timeout(wake_ns(environment.now) - environment.now)
                continue
            yield timeout(step_ns(features(step), start))
            finish(step, None if token_source is None else token_source(step), environment.now)
            flush()
    except (Exception, KeyboardInterrupt) as error:
        session.cancel(environment.now)
        return session.outcome(error)


class Alarm:
    """A wait that something else may end."""

    def __init__(self, environment: simpy.Environment) -> None:
        self._environment = environment
        self._bell: simpy.Event | None = None
        self.has_rung = False

    def ring(self) -> None:
        """End the wait that is going on, if there is one."""
        if self._bell is not None and not self._bell.triggered:
            self._bell.succeed()

    def wait(self, delay_ns: int | None) -> SimulatedTime:
        """For ``delay_ns`` (None: without a limit), or until ``ring``; ``has_rung`` says which it was."""
        bell = self._bell = self._environment.event()
        yield bell if delay_ns is None else bell | self._environment.timeout(delay_ns)
        self._bell, self.has_rung = None, bell.triggered
