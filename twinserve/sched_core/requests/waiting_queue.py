"""The queue of requests that wait for a place in the batch, in order of rank."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import TypeAlias

from twinserve.sched_core.journal import Journal
from twinserve.sched_core.requests.request import Request

Key: TypeAlias = tuple[tuple[float, ...], int, int, int]


def queue_key(request: Request) -> Key:
    """Total order: rank, then preempted requests (latest first), then scheduled arrival, then id.

    Preempted requests go before new ones of the same rank: they hold their place (vLLM's fcfs puts them in front).
    """
    return (request.rank, request.requeue, request.spec.arrival_ns, request.spec.request_id)


class WaitingQueue:
    """A list sorted by ``queue_key``; the front is at ``_front`` so that taking it costs no shifting.

    ``num_changes`` counts what changed its content or order.
    """

    def __init__(self, journal: Journal) -> None:
        self._record = journal.record
        self._entries: list[Request] = []
        self._front = 0
        self._num_requeued = 0
        self.num_changes = 0

    def __len__(self) -> int:
        return len(self._entries) - self._front

    def __iter__(self) -> Iterator[Request]:
        return iter(self._entries[self._front :])

    def peek(self, position: int = 0) -> Request:
        return self._entries[self._front + position]

    def behind_head(self, at_most: int) -> list[Request]:
        """The requests after the first one, in order."""
        return self._entries[self._front + 1 : self._front + 1 + at_most]

    def add(self, request: Request) -> None:
        """Queue an arrival. Not part of any step: cancelling one leaves it queued."""
        self._insert(request)

    def discard(self, request: Request) -> None:
        """Drop an aborted request, between steps."""
        self._delete(request)

    def push_front(self, request: Request) -> None:
        """Requeue a preempted request ahead of all others of its rank."""
        self._record((self._set_requeue, request, request.requeue, self._num_requeued))
        self._num_requeued += 1
        request.requeue = -self._num_requeued
        self._insert(request)
        self._record((self._delete, request))

    def remove(self, request: Request) -> None:
        self._delete(request)
        self._record((self._insert, request))

    def rerank(self, rank: Callable[[Request], tuple[float, ...]]) -> None:
        """Ask for every rank again and sort; nothing changes when ``rank`` raises."""
        waiting = self._entries[self._front :]
        for request, new in zip(waiting, [rank(request) for request in waiting], strict=True):
            request.rank = new
        waiting.sort(key=queue_key)
        self._entries, self._front = waiting, 0
        self.num_changes += 1

    def _insert(self, request: Request) -> None:
        self.num_changes += 1
        entries = self._entries
        if len(self) == 0 or queue_key(entries[-1]) < queue_key(request):
            entries.append(request)
        else:
            insort(entries, request, lo=self._front, key=queue_key)

    def _delete(self, request: Request) -> None:
        self.num_changes += 1
        if self._entries[self._front] is request:
            self._front += 1
            self._compact()
        else:
            del self._entries[bisect_left(self._entries, queue_key(request), lo=self._front, key=queue_key)]

    def _compact(self) -> None:
        if self._front > 1024 and self._front * 2 > len(self._entries):
            del self._entries[: self._front]
            self._front = 0

    def _set_requeue(self, request: Request, requeue: int, num_requeued: int) -> None:
        request.requeue = requeue
        self._num_requeued = num_requeued
