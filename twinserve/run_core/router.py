"""``Router``: one request source for several engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from twinserve.run_core.inbox import Inbox
from twinserve.run_core.source import RequestSource
from twinserve.sched_core.events import Finished
from twinserve.sched_core.requests.spec import RequestSpec

Choice: TypeAlias = Callable[[RequestSpec, Sequence[Inbox]], int]
"""Picks the replica (its index) that a request goes to."""


def least_unfinished(spec: RequestSpec, replicas: Sequence[Inbox]) -> int:  # noqa: ARG001 - a Choice may look at both
    """The replica with the fewest requests that have not ended; the first among equals."""
    return min(range(len(replicas)), key=lambda index: replicas[index].num_unfinished)


class Router:
    """Passes the requests of ``source`` on to ``num_replicas`` engines, whose sources are ``replicas``.

    ``choose`` is asked once per request. Somebody has to call ``route`` when a request is due; engines do so at their
    step boundaries by themselves.
    """

    def __init__(self, source: RequestSource, num_replicas: int, choose: Choice = least_unfinished) -> None:
        self._source = source
        self._choose = choose
        self._replica_of: dict[int, Inbox] = {}
        self.replicas: tuple[Inbox, ...] = tuple(_Replica(self) for _ in range(num_replicas))

    def route(self, now: int) -> None:
        """Put what is due at or before ``now`` into the replicas' inboxes."""
        for request_id in self._source.due_aborts(now):
            self._replica_of[request_id].abort(request_id)
        for spec in self._source.due(now):
            replica = self.replicas[self._choose(spec, self.replicas)]
            self._replica_of[spec.request_id] = replica
            replica.put(spec)

    def next_event_ns(self) -> int | None:
        """When ``route`` has something to do next, as ``RequestSource.next_event_ns``."""
        return self._source.next_event_ns()

    @property
    def exhausted(self) -> bool:
        return self._source.exhausted

    def subscribe(self, changed: Callable[[], None]) -> None:
        """``changed`` is called when a request has ended: others may be due now, or none is left."""
        self._source.subscribe(changed)

    def finished(self, event: Finished, now: int) -> None:
        del self._replica_of[event.request_id]
        self._source.finished(event, now)

    def refused(self, request_id: int, now: int) -> None:
        del self._replica_of[request_id]
        self._source.refused(request_id, now)


class _Replica(Inbox):
    """An inbox whose engine also looks for what the router has not passed on yet."""

    def __init__(self, router: Router) -> None:
        super().__init__(on_finished=router.finished, on_refused=router.refused)
        self._router = router

    def due_aborts(self, now: int) -> list[int]:
        self._router.route(now)
        return super().due_aborts(now)

    def next_event_ns(self) -> int | None:
        own = super().next_event_ns()
        return self._router.next_event_ns() if own is None else own

    @property
    def exhausted(self) -> bool:
        return self._router.exhausted

    def subscribe(self, changed: Callable[[], None]) -> None:
        super().subscribe(changed)
        self._router.subscribe(changed)
