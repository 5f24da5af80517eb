"""Ids that are handed over late: all of them, in order, whenever somebody settles."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import make_harness, make_request
from twinserve.sched_core.output_log import OutputLog
from twinserve.sched_core.requests.request import Request

NUM_REQUESTS = 4
steps = st.lists(
    st.tuples(
        st.lists(st.integers(0, NUM_REQUESTS - 1), unique=True),  # rows that sample
        st.sets(st.integers(0, NUM_REQUESTS - 1)),  # rows whose ids are wanted at once
        st.booleans(),  # settle afterwards
    ),
    max_size=12,
)


@given(steps)
def test_every_id_arrives_in_order_and_urgent_ones_at_once(
    steps: list[tuple[list[int], set[int], bool]],
) -> None:
    """A row is only urgent when nothing of it is late: every step settles what the last one left."""
    log = OutputLog()
    requests = [Request(make_request(index)) for index in range(NUM_REQUESTS)]
    expected: dict[int, list[int]] = {row: [] for row in range(NUM_REQUESTS)}
    for number, (rows, urgent_rows, settles) in enumerate(steps):
        log.settle()
        ids = [100 * number + row for row in rows]
        urgent = {place for place, row in enumerate(rows) if row in urgent_rows}
        log.add(requests, np.array(rows, dtype=np.int64), np.array(ids, dtype=np.int64), urgent)
        for row, token_id in zip(rows, ids, strict=True):
            expected[row].append(token_id)
        assert all(list(requests[rows[place]].output_ids) == expected[rows[place]] for place in urgent)
        if settles:
            log.settle()
            assert {row: list(request.output_ids) for row, request in enumerate(requests)} == expected
    log.settle()
    assert {row: list(request.output_ids) for row, request in enumerate(requests)} == expected


def test_settling_while_a_step_is_in_flight_changes_nothing_that_can_be_seen() -> None:
    """Blocks are few, so that requests are preempted and bring their sampled ids back."""
    plain, settling = (make_harness(num_blocks=7, block_size=4, max_num_seqs=3, max_model_len=40) for _ in range(2))
    for harness in (plain, settling):
        harness.add(*(make_request(index, length=5 + index, max_tokens=9) for index in range(4)))
    while plain.engine.has_unfinished:
        plans = plain.begin(), settling.begin()
        settling.engine.settle()
        assert plans[0].to_bytes() == plans[1].to_bytes()
        assert [one.output_token_ids for one in plans[0].started] == [one.output_token_ids for one in plans[1].started]
        ids = [7 * plans[0].step_id + place for place in range(plans[0].num_samples)]
        plain.finish(plans[0], ids)
        settling.finish(plans[1], ids)
    assert plain.engine.stats() == settling.engine.stats()
    assert plain.engine.stats()["num_preemptions"] > 0
    assert plain.delivered == settling.delivered
