"""Requests that come while an engine runs: inboxes, and one source behind several engines."""

from __future__ import annotations

import threading

import pytest

from tests.builders import FixedCost, make_engine, make_request
from twinserve.run_core.clock import ManualClock, WallClock
from twinserve.run_core.inbox import Inbox
from twinserve.run_core.record import Recorder, RunRecord
from twinserve.run_core.router import Router, least_unfinished
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import FollowUp, Traffic
from twinserve.run_core.wall_clock_driver import run_in_real_time
from twinserve.sched_core.events import Event, Finished
from twinserve.sim_backend.driver import simulate
from twinserve.sim_backend.priced_runner import PricedRunner

MICROSECOND = 1000


def decisions(record: RunRecord) -> list[bytes]:
    return [plan.to_bytes() for plan in record.plans]


def busy_traffic() -> Traffic:
    """Idle gaps, preemptions, a concurrency cap, a conversation, a client that gives up and a refusal."""
    specs = [make_request(i, 3 + 2 * i, max_tokens=4 + i, arrival_ns=i * 37) for i in range(10)]
    specs += [make_request(10, 5, arrival_ns=9_000), make_request(11, 5), make_request(12, 9_999, arrival_ns=100)]
    return Traffic(
        specs, max_concurrency=6, follow_ups={11: FollowUp(after=3, delay_ns=25)}, abort_after_ns={4: 90, 10: 35}
    )


def small_session(source: Traffic | Inbox) -> Session:
    engine = make_engine(num_blocks=12, block_size=4, max_num_seqs=4, max_num_batched_tokens=12, max_model_len=64)
    return Session(engine, source, Recorder(keep_plans=True), check=True)


def test_an_inbox_gives_each_request_once_and_ends_when_it_is_closed_and_all_have_ended() -> None:
    inbox, changes = Inbox(), []
    inbox.subscribe(lambda: changes.append(None))
    assert (inbox.next_event_ns(), inbox.exhausted) == (None, False)
    inbox.put(make_request(0))
    inbox.abort(0)
    assert (inbox.next_event_ns(), inbox.num_unfinished) == (0, 1)
    assert (inbox.due_aborts(5), [spec.request_id for spec in inbox.due(5)]) == ([0], [0])
    assert (inbox.due_aborts(6), inbox.due(6), inbox.next_event_ns()) == ([], [], None)
    inbox.close()
    assert not inbox.exhausted
    inbox.refused(0, 7)
    assert (inbox.exhausted, inbox.num_unfinished, len(changes)) == (True, 0, 3)
    with pytest.raises(ValueError, match="request 1 comes after the inbox was closed"):
        inbox.put(make_request(1))


def test_one_engine_behind_a_router_decides_what_it_decides_alone() -> None:
    alone = simulate(small_session(busy_traffic()), FixedCost(20)).complete()
    router = Router(busy_traffic(), 1)
    routed = simulate(small_session(router.replicas[0]), FixedCost(20)).complete()
    assert decisions(routed) == decisions(alone)
    assert routed.requests == alone.requests
    assert alone.stats["num_preemptions"] > 0
    assert "abort" in alone.requests["finish_reason"]
    assert any(alone.requests["refusal"])


def test_the_least_busy_replica_is_chosen_and_the_first_among_equals() -> None:
    replicas = [Inbox(), Inbox(), Inbox()]
    replicas[0].put(make_request(0))
    assert least_unfinished(make_request(1), replicas) == 1
    replicas[1].put(make_request(1))
    replicas[2].put(make_request(2))
    assert least_unfinished(make_request(3), replicas) == 0


@pytest.mark.parametrize("step_ns", [1, 20, 333])
def test_a_priced_device_in_real_time_decides_and_records_what_the_simulator_does(step_ns: int) -> None:
    clock = ManualClock()
    runner = PricedRunner(FixedCost(step_ns), clock)
    real = run_in_real_time(small_session(busy_traffic()), runner, clock).complete()
    simulated = simulate(small_session(busy_traffic()), FixedCost(step_ns)).complete()
    assert decisions(real) == decisions(simulated)
    assert real.requests == simulated.requests
    assert (real.end_ns, real.stats) == (simulated.end_ns, simulated.stats)


def test_an_idle_engine_in_real_time_is_woken_by_requests_of_another_thread() -> None:
    """Each request is put only when the one before has ended, so that the engine is idle in between."""
    inbox, ended = Inbox(), [threading.Event() for _ in range(5)]

    def listen(events: tuple[Event, ...]) -> None:
        for event in events:
            if isinstance(event, Finished):
                ended[event.request_id].set()

    def send() -> None:
        for request_id, done in enumerate(ended):
            inbox.put(make_request(request_id, max_tokens=3))
            if not done.wait(30):
                break
        inbox.close()

    clock, client = WallClock(), threading.Thread(target=send)
    session = Session(make_engine(), inbox, on_events=listen)
    client.start()
    record = run_in_real_time(session, PricedRunner(FixedCost(MICROSECOND), clock), clock).complete()
    client.join()
    assert record.requests["request_id"] == [0, 1, 2, 3, 4]
    assert record.requests["output_len"] == [3] * 5


def test_a_wake_up_ends_the_wait_that_goes_on_or_the_next_one() -> None:
    clock = WallClock()
    clock.wake()
    clock.wait_until(None)
    threading.Timer(0.01, clock.wake).start()
    clock.wait_until(None)
    clock.wait_until(clock.now() + MICROSECOND)


def test_a_wait_that_nobody_could_end_is_an_error_on_a_manual_clock() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="without an end"):
        run_in_real_time(Session(make_engine(), Inbox()), PricedRunner(FixedCost(), clock), clock).complete()
