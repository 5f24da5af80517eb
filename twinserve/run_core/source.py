"""``RequestSource``: where an engine's requests come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from twinserve.sched_core.events import Finished
from twinserve.sched_core.requests.spec import RequestSpec


class RequestSource(Protocol):
    """Says which requests and client aborts are due, and hears how requests end. It has no clock.

    A workload known in advance is a ``Traffic``; requests that come while the engine runs are put into an ``Inbox``.
    All times are integer nanoseconds since the run's start.
    """

    def due_aborts(self, now: int) -> Sequence[int]:
        """Ids of unfinished requests whose clients give up at or before ``now``; each is returned once."""

    def due(self, now: int) -> Sequence[RequestSpec]:
        """Requests to send at or before ``now``, in order; each is returned once."""

    def finished(self, event: Finished, now: int) -> None:
        """A request that was sent has ended."""

    def refused(self, request_id: int, now: int) -> None:
        """A request that was sent was refused; it has ended."""

    def next_event_ns(self) -> int | None:
        """When something is due next; None when that depends on a request's end or on somebody else."""

    @property
    def exhausted(self) -> bool:
        """True when every request has ended and no other will come."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """``changed`` is called whenever ``next_event_ns`` or ``exhausted`` may differ from what they last said.

        The calls of ``due`` and ``due_aborts`` themselves need not be told. It may be called from any thread.
        """
