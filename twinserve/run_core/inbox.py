"""``Inbox``: requests that come while an engine runs, from a router or a server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from twinserve.sched_core.events import Finished
from twinserve.sched_core.requests.spec import RequestSpec

Item = TypeVar("Item")


class Inbox:
    """A request source that others put requests into, from any thread, until they ``close`` it.

    ``on_finished`` and ``on_refused`` are called in the engine's thread when a request has ended.
    """

    def __init__(
        self,
        *,
        on_finished: Callable[[Finished, int], None] | None = None,
        on_refused: Callable[[int, int], None] | None = None,
    ) -> None:
        self._on_finished = on_finished
        self._on_refused = on_refused
        self._requests: deque[RequestSpec] = deque()
        self._aborts: deque[int] = deque()
        self._unfinished: set[int] = set()
        self._is_closed = False
        self._listeners: list[Callable[[], None]] = []

    @property
    def num_unfinished(self) -> int:
        """Requests that were put in and have not ended."""
        return len(self._unfinished) + len(self._requests)

    def put(self, spec: RequestSpec) -> None:
        """The engine gets ``spec`` at its next step boundary, or at once when it is idle.

        Raises:
            ValueError: the inbox is closed.
        """
        if self._is_closed:
            raise ValueError(f"request {spec.request_id} comes after the inbox was closed")
        self._requests.append(spec)
        self._change()

    def abort(self, request_id: int) -> None:
        """The client of a request gives up."""
        self._aborts.append(request_id)
        self._change()

    def close(self) -> None:
        """No other request will come: the engine ends when the last one has."""
        self._is_closed = True
        self._change()

    def due_aborts(self, now: int) -> list[int]:  # noqa: ARG002 - whatever is here is due
        return _emptied(self._aborts)

    def due(self, now: int) -> list[RequestSpec]:  # noqa: ARG002 - whatever is here is due
        sent = _emptied(self._requests)
        self._unfinished.update(spec.request_id for spec in sent)
        return sent

    def finished(self, event: Finished, now: int) -> None:
        self._unfinished.discard(event.request_id)
        if self._on_finished is not None:
            self._on_finished(event, now)

    def refused(self, request_id: int, now: int) -> None:
        self._unfinished.discard(request_id)
        if self._on_refused is not None:
            self._on_refused(request_id, now)

    def next_event_ns(self) -> int | None:
        """0 while something waits to be taken, else None."""
        return 0 if self._requests or self._aborts else None

    @property
    def exhausted(self) -> bool:
        return self._is_closed and not self._requests and not self._unfinished

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._listeners.append(changed)

    def _change(self) -> None:
        for changed in self._listeners:
            changed()


def _emptied(queue: deque[Item]) -> list[Item]:
    """All items; others may append meanwhile."""
    return [queue.popleft() for _ in range(len(queue))]
