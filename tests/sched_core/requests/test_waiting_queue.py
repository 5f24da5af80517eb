"""Order of the queue under arrivals, preemptions, removals and undo."""

from __future__ import annotations

import random

import pytest

from tests.builders import make_request
from twinserve.sched_core.journal import Journal
from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.requests.waiting_queue import WaitingQueue, queue_key


def make(request_id: int, rank: tuple[float, ...] = (), arrival_ns: int = 0) -> Request:
    request = Request(make_request(request_id, arrival_ns=arrival_ns))
    request.rank = rank
    return request


def ids(queue: WaitingQueue) -> list[int]:
    return [request.request_id for request in queue]


def test_queue_orders_by_rank_then_arrival_then_id() -> None:
    queue = WaitingQueue(Journal())
    for request in [make(3, (1,)), make(2, (0,), 9), make(1, (0,), 5), make(0, (1,)), make(4, (0,), 5)]:
        queue.add(request)
    assert ids(queue) == [1, 4, 2, 0, 3]
    assert (queue.peek().request_id, queue.peek(2).request_id) == (1, 2)


def test_preempted_request_goes_before_new_ones_and_the_latest_goes_first() -> None:
    queue = WaitingQueue(Journal())
    first, second = make(8), make(9)
    queue.add(make(0))
    queue.push_front(first)
    queue.push_front(second)
    assert ids(queue) == [9, 8, 0]
    assert first.resumes


def test_preempted_request_stays_behind_a_better_rank() -> None:
    queue = WaitingQueue(Journal())
    queue.add(make(0, (1,)))
    queue.push_front(make(1, (2,)))
    assert ids(queue) == [0, 1]


def test_new_ranks_sort_the_queue_again() -> None:
    queue = WaitingQueue(Journal())
    for i in range(4):
        queue.add(make(i))
    queue.remove(queue.peek())
    queue.rerank(lambda request: (-request.request_id,))
    assert ids(queue) == [3, 2, 1]


@pytest.mark.parametrize("seed", range(10))
def test_random_use_keeps_the_order_and_rolls_back(seed: int) -> None:
    draw = random.Random(seed)
    journal = Journal()
    queue = WaitingQueue(journal)
    waiting: list[Request] = []
    taken: list[Request] = []
    for i in range(300):
        request = make(i, (draw.randint(0, 3),), draw.randint(0, 5))
        queue.add(request)
        waiting.append(request)
        journal.clear()
        if draw.random() < 0.5:
            journal.clear()
            before = (ids(queue), [(one.request_id, one.requeue) for one in queue])
            gone = draw.sample(waiting, draw.randint(1, len(waiting)))
            for one in gone:
                queue.remove(one)
            for one in draw.sample(gone, len(gone) // 2):
                queue.push_front(one)
            journal.rollback()
            assert (ids(queue), [(one.request_id, one.requeue) for one in queue]) == before
        if draw.random() < 0.4:
            one = waiting.pop(draw.randrange(len(waiting)))
            queue.remove(one)
            taken.append(one)
        if taken and draw.random() < 0.2:
            one = taken.pop()
            queue.push_front(one)
            waiting.append(one)
        assert ids(queue) == [one.request_id for one in sorted(waiting, key=queue_key)]


def test_long_queue_served_from_the_front_keeps_its_order() -> None:
    queue = WaitingQueue(Journal())
    for i in range(5000):
        queue.add(make(i))
    served = []
    while len(queue):
        served.append(queue.peek().request_id)
        queue.discard(queue.peek())
    assert served == list(range(5000))
