"""Several engines behind one router, simulated in one environment."""

from __future__ import annotations

from collections.abc import Sequence

import simpy

from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.router import Router
from twinserve.run_core.session import Session
from twinserve.sim_backend.cost_model import CostModel
from twinserve.sim_backend.driver import Alarm, SimulatedTime, start


def simulate_replicas(router: Router, replicas: Sequence[tuple[Session, CostModel]]) -> list[RunOutcome]:
    """Serve the requests of ``router`` by engines that step independently; one outcome per replica.

    The source of session ``i`` is ``router.replicas[i]``. Requests are routed when they are due, not when an engine
    looks for them. When a replica's run stops early, all others end there, too.
    """
    environment = simpy.Environment(initial_time=0)
    engines = [start(environment, session, cost_model) for session, cost_model in replicas]
    environment.process(_route(environment, router))
    stopped = environment.event()
    for engine in engines:
        environment.process(_watch(engine, stopped))
    environment.run(until=environment.all_of(engines) | stopped)
    return [
        engine.value if engine.triggered else session.outcome()
        for engine, (session, _) in zip(engines, replicas, strict=True)
    ]


def _route(environment: simpy.Environment, router: Router) -> SimulatedTime:
    alarm = Alarm(environment)
    router.subscribe(alarm.ring)
    while not router.exhausted:
        router.route(environment.now)
        due_at = router.next_event_ns()
        yield from alarm.wait(None if due_at is None else max(due_at - environment.now, 0))


def _watch(engine: simpy.Process, stopped: simpy.Event) -> SimulatedTime:
    outcome = yield engine
    if outcome.error is not None and not stopped.triggered:
        stopped.succeed()
