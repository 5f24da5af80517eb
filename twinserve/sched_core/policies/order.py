"""Queue orders."""

from __future__ import annotations

from twinserve.sched_core.events import Finished
from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.request import Request


class OrderBase:
    """Base of queue orders: override ``rank``, and the hooks that an order needs; here every hook does nothing."""

    ranks_running = False

    def rank(self, request: Request, now: int) -> tuple[float, ...]:
        raise TypeError(f"{type(self).__name__} must define rank(request, now)")

    def on_arrival(self, request: Request, now: int) -> None: ...
    def on_admit(self, request: Request, now: int) -> None: ...
    def on_tokens(self, request_ids: Ints, num_tokens: Ints, now: int) -> None: ...
    def on_finish(self, event: Finished, now: int) -> None: ...
    def on_time(self, now: int) -> bool:
        return False

    def wake_at(self, now: int) -> int | None:
        return None


class FirstComeFirstServed(OrderBase):
    """Order of arrival."""

    def rank(self, request: Request, now: int) -> tuple[float, ...]:
        return ()


class Priority(OrderBase):
    """Smallest ``priority`` first (vLLM)."""

    def rank(self, request: Request, now: int) -> tuple[float, ...]:
        return (request.spec.priority,)


class ShortestJobFirst(OrderBase):
    """Shortest predicted output first; without a prediction ``max_tokens`` stands in."""

    def rank(self, request: Request, now: int) -> tuple[float, ...]:
        predicted = request.spec.predicted_output_len
        return (request.spec.max_tokens if predicted is None else predicted,)
