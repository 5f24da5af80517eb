"""``Traffic``: a workload known in advance as a request source.

It knows when requests are sent: open loop, a concurrency cap, conversations and client aborts. Both drivers ask it at
every step boundary, so a run and its simulation see the same clients. It has no clock: the driver tells it the time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from twinserve.sched_core.events import Finished
from twinserve.sched_core.requests.prompt import Piece, Prompt, Segment, TokenIds
from twinserve.sched_core.requests.spec import RequestSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """A request that is sent ``delay_ns`` after request ``after`` has finished (the next turn of a conversation)."""

    after: int
    delay_ns: int = 0


class Traffic:
    """A run's requests and the rules by which clients send them.

    ``requests`` arrive at their ``arrival_ns`` (ties keep their order). ``max_concurrency`` None sends on arrival;
    N holds arrived requests back while N are unfinished. ``follow_ups`` names, by request id, the requests that wait
    for another one to end instead; their ``arrival_ns`` is set then. ``abort_after_ns`` maps
    a request id to how long after sending its client gives up.

    Several engines may share one object: each request goes to the engine that asks first.

    Raises:
        ValueError: two requests have the same id; or a follow-up would never be sent, since it names a request that
            does not exist or waits for itself.
    """

    def __init__(
        self,
        requests: Sequence[RequestSpec],
        *,
        max_concurrency: int | None = None,
        follow_ups: Mapping[int, FollowUp] | None = None,
        abort_after_ns: Mapping[int, int] | None = None,
    ) -> None:
        follow_ups = follow_ups or {}
        counts = Counter(spec.request_id for spec in requests)
        known = counts.keys()
        if len(known) < len(requests):
            raise ValueError(f"two requests have the id {counts.most_common(1)[0][0]}")
        _check_follow_ups(follow_ups, known)
        self._max_concurrency = max_concurrency
        self._abort_after_ns = dict(abort_after_ns or {})
        self._waiting_on: dict[int, list[tuple[RequestSpec, int]]] = {}
        self._arrivals: list[tuple[int, int, RequestSpec]] = []
        self._held: deque[RequestSpec] = deque()
        self._in_flight: dict[int, RequestSpec] = {}
        self._aborts: list[tuple[int, int]] = []
        self._listeners: list[Callable[[], None]] = []
        self._num_pushed = 0
        self.num_requests = len(requests)
        self.num_done = 0
        for spec in sorted(requests, key=lambda spec: spec.arrival_ns):
            turn = follow_ups.get(spec.request_id)
            if turn is None:
                self._push(spec)
            else:
                self._waiting_on.setdefault(turn.after, []).append((spec, turn.delay_ns))

    def subscribe(self, changed: Callable[[], None]) -> None:
        """``changed`` is called when a request has ended: others may be due now, or none is left."""
        self._listeners.append(changed)

    def due(self, now: int) -> list[RequestSpec]:
        """Requests to send at ``now``, in order; each is returned once."""
        while self._arrivals and self._arrivals[0][0] <= now:
            self._held.append(heappop(self._arrivals)[2])
        if not self._held:
            return []
        sent: list[RequestSpec] = []
        while self._held and self._has_free_slot():
            spec = self._held.popleft()
            self._in_flight[spec.request_id] = spec
            sent.append(spec)
            if spec.request_id in self._abort_after_ns:
                heappush(self._aborts, (now + self._abort_after_ns[spec.request_id], spec.request_id))
        return sent

    def due_aborts(self, now: int) -> list[int]:
        """Ids of unfinished requests whose client gives up at or before ``now``; each is returned once."""
        gone: list[int] = []
        while self._aborts and self._aborts[0][0] <= now:
            request_id = heappop(self._aborts)[1]
            if request_id in self._in_flight:
                gone.append(request_id)
        return gone

    def finished(self, event: Finished, now: int) -> None:
        """A sent request ended: frees its slot and schedules the requests that waited for it."""
        spec = self._in_flight.get(event.request_id)
        self._release(event.request_id, event.output_token_ids, spec, now)

    def refused(self, request_id: int, now: int) -> None:
        """A sent request was refused: as if it had ended at once."""
        self._release(request_id, (), None, now)

    def stop_sending(self) -> None:
        """Forget the requests that were not sent yet; those that were run to their ends."""
        self._arrivals.clear()
        self._held.clear()
        self._waiting_on.clear()
        self.num_requests = self.num_done + len(self._in_flight)

    def next_event_ns(self) -> int | None:
        """When the next arrival or abort is due; None when nothing happens until a request finishes.

        A request that arrived before and may be sent now (the one ahead of it was refused) is due since then.
        """
        times = [heap[0][0] for heap in (self._arrivals, self._aborts) if heap]
        if self._held and self._has_free_slot():
            times.append(self._held[0].arrival_ns)
        return min(times) if times else None

    @property
    def exhausted(self) -> bool:
        """True when every request has been sent and has ended."""
        return self.num_done == self.num_requests

    def _has_free_slot(self) -> bool:
        return self._max_concurrency is None or len(self._in_flight) < self._max_concurrency

    def _push(self, spec: RequestSpec) -> None:
        heappush(self._arrivals, (spec.arrival_ns, self._num_pushed, spec))
        self._num_pushed += 1

    def _release(self, request_id: int, output: tuple[int, ...], spec: RequestSpec | None, now: int) -> None:
        self._in_flight.pop(request_id, None)
        self.num_done += 1
        for waiting, delay_ns in self._waiting_on.pop(request_id, ()):
            prompt = quote(waiting.prompt, spec, output)
            self._push(replace(waiting, arrival_ns=now + delay_ns, prompt=prompt))
        for changed in self._listeners:
            changed()


def _check_follow_ups(follow_ups: Mapping[int, FollowUp], known: Set[int]) -> None:
    checked: set[int] = set()
    for request_id in follow_ups:
        chain: list[int] = []
        while request_id in follow_ups and request_id not in checked:
            checked.add(request_id)
            chain.append(request_id)
            request_id = follow_ups[request_id].after  # noqa: PLW2901 - up the conversation
        if request_id not in known:
            raise ValueError(f"request {chain[-1]} follows request {request_id}, which does not exist")
        if request_id in chain:
            raise ValueError(f"request {request_id} follows itself; its conversation has no first request")


def quote(prompt: Prompt, answered: RequestSpec | None, output: tuple[int, ...]) -> Prompt:
    """``prompt`` with the made-up output of ``answered`` replaced by the ids a model really sampled.

    Unchanged where ``answered`` is unknown, has no output stream, or ``output`` is empty.
    """
    if answered is None or answered.output_stream is None or not output:
        return prompt
    real = Prompt.of_token_ids(output)

    def resolve(piece: Piece) -> tuple[Piece, ...]:
        quoted = isinstance(piece, Segment) and piece.stream == answered.output_stream
        if not (quoted and isinstance(piece, Segment)):
            return (piece,)
        end = min(piece.offset + piece.length, len(real))
        return tuple(part for part in real.slice(piece.offset, end) if isinstance(part, TokenIds))

    return Prompt(part for piece in prompt.pieces for part in resolve(piece))
