"""Several engines in one SimPy environment: on one traffic, behind a router, stopped together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pytest
import simpy

from tests.builders import FixedCost, make_engine, make_request
from twinserve.run_core.inbox import Inbox
from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.router import Router
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import FollowUp, Traffic
from twinserve.sched_core.errors import RunStopped
from twinserve.sched_core.features import StepFeatures
from twinserve.sched_core.requests.spec import RequestSpec
from twinserve.sim_backend.driver import start
from twinserve.sim_backend.replicas import simulate_replicas


def session(source: Traffic | Inbox) -> Session:
    return Session(make_engine(max_num_seqs=2), source, check=True)


def served(outcomes: Sequence[RunOutcome]) -> list[list[int]]:
    """Ids of the requests that each engine brought to their ends."""
    records = [outcome.complete() for outcome in outcomes]
    return [
        [i for i, reason in zip(r.requests["request_id"], r.requests["finish_reason"], strict=True) if reason]
        for r in records
    ]


def traffic(num_requests: int = 40, **rules: object) -> Traffic:
    specs = [make_request(i, 10, max_tokens=4 + i % 5, arrival_ns=i * 15) for i in range(num_requests)]
    return Traffic(specs, **rules)  # type: ignore[arg-type]


@pytest.mark.parametrize("rules", [{}, {"max_concurrency": 5}, {"abort_after_ns": {3: 5, 8: 60}}])
def test_two_engines_on_one_traffic_share_its_requests_and_end_together(rules: dict[str, object]) -> None:
    environment, shared = simpy.Environment(), traffic(**rules)
    engines = [start(environment, session(shared), FixedCost(10)) for _ in range(2)]
    environment.run(until=environment.all_of(engines))
    first, second = served([engine.value for engine in engines])
    assert sorted(first + second) == list(range(40))
    assert min(len(first), len(second)) >= 10, "a busy engine leaves requests to an idle one"


def test_an_engine_without_work_waits_while_another_one_works() -> None:
    """All requests arrive at once and go to the first engine; their follow-ups find the second one idle."""
    specs = [make_request(i, 10, max_tokens=5) for i in range(4)]
    shared = Traffic(specs, follow_ups={2: FollowUp(after=0, delay_ns=7), 3: FollowUp(after=1, delay_ns=7)})
    environment = simpy.Environment()
    engines = [start(environment, session(shared), FixedCost(10)) for _ in range(2)]
    environment.run(until=environment.all_of(engines))
    assert sorted(chain(*served([engine.value for engine in engines]))) == [0, 1, 2, 3]


def test_an_engine_in_an_environment_that_runs_already_sees_arrivals_of_other_processes() -> None:
    environment, inbox = simpy.Environment(), Inbox()

    def client() -> object:
        for request_id in range(3):
            yield environment.timeout(1000)
            inbox.put(make_request(request_id, max_tokens=2, arrival_ns=environment.now))
        inbox.close()

    engine = start(environment, session(inbox), FixedCost(10, delay=3))
    environment.process(client())
    environment.run()
    requests = engine.value.complete().requests
    assert requests["arrival_ns"] == [1000, 2000, 3000]
    assert requests["sent_ns"] == [1003, 2003, 3003], "an idle engine notices an arrival as late as its cost model says"


@pytest.mark.parametrize("num_replicas", [1, 2, 3])
def test_replicas_behind_a_router_serve_every_request_once(num_replicas: int) -> None:
    router = Router(traffic(max_concurrency=9, abort_after_ns={5: 40}), num_replicas)
    shares = served(simulate_replicas(router, [(session(inbox), FixedCost(10)) for inbox in router.replicas]))
    assert sorted(chain(*shares)) == list(range(40))
    assert min(len(share) for share in shares) >= 20 // num_replicas


def test_a_router_chooses_when_a_request_is_due_not_when_an_engine_looks_for_it() -> None:
    """Engine 0 is in a step that ends at 100; the request of 50 goes where fewest are unfinished at 50."""
    seen: list[tuple[int, list[int]]] = []

    def choose(spec: RequestSpec, replicas: Sequence[Inbox]) -> int:
        seen.append((spec.request_id, [inbox.num_unfinished for inbox in replicas]))
        return spec.request_id % 2

    specs = [make_request(i, max_tokens=1, arrival_ns=50 * i) for i in range(4)]
    router = Router(Traffic(specs), 2, choose)
    simulate_replicas(router, [(session(inbox), FixedCost(100)) for inbox in router.replicas])
    assert seen == [(0, [0, 0]), (1, [1, 0]), (2, [0, 1]), (3, [1, 0])]


class Breaks(FixedCost):
    def step_ns(self, features: StepFeatures, now: int) -> int:
        if now >= 100:
            raise RunStopped("the device is gone")
        return super().step_ns(features, now)


def test_a_replica_that_stops_ends_the_others_with_what_they_have() -> None:
    router = Router(traffic(), 2)
    costs = [Breaks(10), FixedCost(10)]
    broken, other = simulate_replicas(
        router, [(session(inbox), cost) for inbox, cost in zip(router.replicas, costs, strict=True)]
    )
    assert str(broken.error) == "the device is gone"
    assert other.error is None
    assert None in other.record.requests["finish_reason"]
    assert 100 <= broken.record.end_ns <= 110
