"""Queue order by priority: smaller value first, then arrival, then id."""

from __future__ import annotations

import random

import pytest

from tests.builders import Harness, make_harness, make_request, running_ids, waiting_ids

BY_PRIORITY = {"order": "priority", "victim": "lowest_priority"}


def _queued(priorities: list[int], arrivals: list[int] | None = None, max_num_seqs: int = 128) -> Harness:
    harness = make_harness(BY_PRIORITY, max_num_seqs=max_num_seqs)
    arrivals = arrivals or [0] * len(priorities)
    for i, (priority, arrival) in enumerate(zip(priorities, arrivals, strict=True)):
        harness.add(make_request(i, priority=priority, arrival_ns=arrival))
    return harness


@pytest.mark.parametrize(
    ("priorities", "arrivals", "expected"),
    [
        ([2, 0, 1], [0, 0, 0], [1, 2, 0]),
        ([1, 1, 1], [3, 1, 2], [1, 2, 0]),
        ([2, 1, 1, 0], [1, 3, 2, 4], [3, 2, 1, 0]),
        ([5, 1, 8, 3, 2, 7, 4, 6], [0] * 8, [1, 4, 3, 6, 0, 7, 5, 2]),
    ],
)
def test_queue_is_served_by_priority_then_arrival(
    priorities: list[int], arrivals: list[int], expected: list[int]
) -> None:
    assert list(_queued(priorities, arrivals).step()) == expected


def test_most_urgent_request_takes_the_only_place() -> None:
    harness = _queued([3, 1, 2, 0], max_num_seqs=1)
    harness.step()
    assert running_ids(harness.engine) == [3]
    assert waiting_ids(harness.engine) == [1, 2, 0]


def test_two_most_urgent_requests_take_both_places() -> None:
    harness = _queued([3, 1, 2, 0], max_num_seqs=2)
    harness.step()
    assert running_ids(harness.engine) == [3, 1]
    assert waiting_ids(harness.engine) == [2, 0]


@pytest.mark.parametrize("seed", range(10))
def test_random_priorities_under_pressure_end_with_every_token(seed: int) -> None:
    """The invariants are checked by the harness at every step."""
    draw = random.Random(seed)
    harness = make_harness(BY_PRIORITY, num_blocks=12, max_num_batched_tokens=40, max_num_seqs=4)
    outputs = {}
    for i in range(25):
        outputs[i] = draw.randint(1, 30)
        request = make_request(
            i, draw.randint(1, 60), outputs[i], priority=draw.randint(0, 3), shared=draw.choice([0, 0, 1])
        )
        assert harness.add(request)[0].accepted
        if draw.random() < 0.6:
            harness.step()
    harness.run()
    assert harness.num_outputs == outputs
