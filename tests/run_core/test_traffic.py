"""Clients: arrivals, a cap on concurrency, conversations and clients that give up."""

from __future__ import annotations

import pytest

from tests.builders import make_request
from twinserve.run_core.traffic import FollowUp, Traffic
from twinserve.sched_core.events import Finished, FinishReason
from twinserve.sched_core.requests.prompt import Prompt, Segment


def done(request_id: int, *output: int) -> Finished:
    return Finished(
        request_id=request_id, reason=FinishReason.STOP, num_output_tokens=len(output), output_token_ids=output
    )


def sent(traffic: Traffic, now: int) -> list[int]:
    return [spec.request_id for spec in traffic.due(now)]


def test_requests_are_sent_once_when_due_in_order_of_arrival() -> None:
    traffic = Traffic([make_request(0, arrival_ns=5), make_request(1, arrival_ns=3), make_request(2, arrival_ns=5)])
    assert sent(traffic, 2) == []
    assert traffic.next_event_ns() == 3
    assert sent(traffic, 5) == [1, 0, 2]
    assert sent(traffic, 9) == []
    assert traffic.next_event_ns() is None


def test_nothing_is_sent_or_given_up_when_nothing_is_due() -> None:
    requests = [make_request(i, arrival_ns=3 * i) for i in range(4)]
    traffic = Traffic(requests, max_concurrency=2, abort_after_ns={0: 5, 1: 40}, follow_ups={3: FollowUp(after=2)})
    changes: list[None] = []
    traffic.subscribe(lambda: changes.append(None))
    busy = []
    for now in range(60):
        next_event = traffic.next_event_ns()
        gone, new = traffic.due_aborts(now), sent(traffic, now)
        assert bool(gone or new) <= (next_event is not None and next_event <= now)
        for request_id in gone:
            traffic.finished(done(request_id), now)
        if gone or new:
            busy.append((now, gone, new))
    assert busy == [(0, [], [0]), (3, [], [1]), (5, [0], []), (6, [], [2]), (43, [1], [])]
    assert len(changes) == 2, "one for each request that has ended"


def test_concurrency_cap_holds_arrivals_back_until_a_request_ends() -> None:
    traffic = Traffic([make_request(i) for i in range(3)], max_concurrency=2)
    assert sent(traffic, 0) == [0, 1]
    assert sent(traffic, 1) == []
    traffic.finished(done(0), 7)
    assert sent(traffic, 7) == [2]


def test_refused_request_frees_its_place_for_one_that_arrived_already() -> None:
    traffic = Traffic([make_request(0), make_request(1)], max_concurrency=1)
    assert sent(traffic, 4) == [0]
    traffic.refused(0, 4)
    assert traffic.next_event_ns() == 0
    assert sent(traffic, 4) == [1]


def test_next_turn_follows_the_end_of_the_one_before() -> None:
    traffic = Traffic([make_request(0), make_request(1)], follow_ups={1: FollowUp(after=0, delay_ns=10)})
    assert sent(traffic, 0) == [0]
    assert not traffic.exhausted
    traffic.finished(done(0), 100)
    assert traffic.next_event_ns() == 110
    (turn,) = traffic.due(110)
    assert (turn.request_id, turn.arrival_ns) == (1, 110)
    traffic.finished(done(1), 200)
    assert traffic.exhausted


def test_next_turn_quotes_the_ids_that_were_really_sampled() -> None:
    first = make_request(0, output_stream=77)
    second = make_request(1, prompt=Prompt((Segment(1000, 0, 10), Segment(77, 0, 3), Segment(5, 0, 2))))
    traffic = Traffic([first, second], follow_ups={1: FollowUp(after=0)})
    traffic.due(0)
    traffic.finished(done(0, 41, 42, 43), 9)
    (turn,) = traffic.due(9)
    real = Prompt.of_token_ids([41, 42, 43]).pieces[0]
    assert turn.prompt.pieces == (Segment(1000, 0, 10), real, Segment(5, 0, 2))


def test_next_turn_quotes_made_up_output_as_it_is() -> None:
    prompt = Prompt((Segment(1000, 0, 10), Segment(77, 0, 3)))
    traffic = Traffic(
        [make_request(0, output_stream=77), make_request(1, prompt=prompt)], follow_ups={1: FollowUp(after=0)}
    )
    traffic.due(0)
    traffic.finished(done(0), 9)
    assert traffic.due(9)[0].prompt == prompt


def test_client_gives_up_counting_from_sending_and_only_once() -> None:
    traffic = Traffic([make_request(0), make_request(1)], max_concurrency=1, abort_after_ns={0: 5, 1: 5})
    traffic.due(0)
    assert traffic.due_aborts(4) == []
    assert traffic.next_event_ns() == 5
    assert traffic.due_aborts(5) == [0]
    assert traffic.due_aborts(6) == []
    traffic.finished(done(0), 6)
    assert sent(traffic, 6) == [1]
    traffic.finished(done(1), 8)
    assert traffic.due_aborts(100) == []


def test_two_requests_with_one_id_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="two requests have the id 4"):
        Traffic([make_request(request_id) for request_id in (3, 4, 5, 4)])


def test_a_follow_up_of_an_unknown_request_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="request 1 follows request 7, which does not exist"):
        Traffic([make_request(1)], follow_ups={1: FollowUp(after=7)})


@pytest.mark.parametrize("follows", [{1: 1}, {1: 2, 2: 1}, {0: 1, 1: 2, 2: 1}])
def test_conversations_without_a_first_request_are_refused_at_once(follows: dict[int, int]) -> None:
    follow_ups = {request_id: FollowUp(after=after) for request_id, after in follows.items()}
    with pytest.raises(ValueError, match="follows itself; its conversation has no first request"):
        Traffic([make_request(index) for index in range(3)], follow_ups=follow_ups)


def test_traffic_that_stops_sending_ends_with_what_was_sent() -> None:
    traffic = Traffic([make_request(i) for i in range(3)], max_concurrency=1, follow_ups={2: FollowUp(after=0)})
    assert sent(traffic, 0) == [0]
    traffic.stop_sending()
    assert not traffic.exhausted
    traffic.finished(done(0), 5)
    assert sent(traffic, 9) == []
    assert traffic.exhausted
    assert traffic.next_event_ns() is None
