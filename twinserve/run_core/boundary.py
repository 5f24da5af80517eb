"""What every driver does between two steps, written once: send what is due, and know when to wake."""

from __future__ import annotations

from collections.abc import Callable

from twinserve.run_core.record import Recorder
from twinserve.run_core.traffic import Traffic
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.events import Event
from twinserve.sched_core.plan import Idle
from twinserve.sched_core.requests.spec import RequestSpec


def send_due(
    engine: EngineCore,
    traffic: Traffic,
    recorder: Recorder,
    now: int,
    tell: Callable[[tuple[Event, ...], int], None],
    expect: Callable[[RequestSpec], None] | None = None,
) -> None:
    """Pass on what clients do at or before ``now``: first those that give up, then new requests, in order.

    ``tell`` is given the events of an abort and ``now``, ``expect`` every request that is accepted.
    """
    if not traffic.anything_due(now):
        return
    for request_id in traffic.due_aborts(now):
        tell(engine.abort(request_id, now), now)
    for spec in traffic.due(now):
        admission = engine.add_request(spec, now)
        if admission.refusal is None:
            recorder.sent(spec, now)
            if expect is not None:
                expect(spec)
        else:
            recorder.refused(spec, now, admission.refusal, admission.detail)
            traffic.refused(spec.request_id, now)


def next_wake(idle: Idle, traffic: Traffic) -> int | None:
    """When (ns) something happens to an idle engine; None when the run is over."""
    times = [time for time in (idle.wake_at, traffic.next_event_ns()) if time is not None]
    if not times or (traffic.exhausted and idle.wake_at is None):
        return None
    return min(times)
