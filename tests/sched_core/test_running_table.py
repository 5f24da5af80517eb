"""Rows of the batch as columns, and their undo."""

from __future__ import annotations

import numpy as np

from tests.builders import make_request
from twinserve.sched_core.journal import Journal
from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.requests.spec import SamplingParams
from twinserve.sched_core.running_table import RunningTable


def fill(table: RunningTable, count: int, *, stop_ids: tuple[int, ...] = ()) -> None:
    sampling = SamplingParams(stop_token_ids=stop_ids)
    for i in range(count):
        request = Request(make_request(i, 10 + i, sampling=sampling))
        table.append(request, num_computed=i, capacity=16, stop_at=100, key_at=16)


def snapshot(table: RunningTable) -> tuple[object, ...]:
    return ([one.request_id for one in table.requests], table._columns[:, : table.size].tolist(), table.num_checking)


def test_remaining_counts_known_tokens_not_computed() -> None:
    table = RunningTable(8, 16, Journal())
    fill(table, 3)
    assert table.remaining().tolist() == [10, 10, 10]


def test_removed_rows_close_up_and_keep_their_order() -> None:
    table = RunningTable(8, 16, Journal())
    fill(table, 5, stop_ids=(1,))
    table.remove([3, 0])
    assert table.request_ids[: table.size].tolist() == [1, 2, 4]
    assert table.num_tokens[: table.size].tolist() == [11, 12, 14]
    assert [one.request_id for one in table.requests] == [1, 2, 4]
    assert table.num_checking == 3


def test_row_count_of_sampled_tokens_reaches_the_request_when_it_leaves() -> None:
    table = RunningTable(2, 16, Journal())
    fill(table, 1)
    table.num_tokens[0] += 7
    assert table.sync(0).num_output_tokens == 7


def test_rollback_restores_every_column() -> None:
    journal = Journal()
    table = RunningTable(8, 16, journal)
    fill(table, 4, stop_ids=(1,))
    table.num_tokens[:4] += 1
    journal.clear()
    before = snapshot(table)
    table.sync(1)
    table.grow(np.array([0, 2]), np.array([1, 2]))
    table.remove([1])
    table.append(Request(make_request(9)), num_computed=0, capacity=16, stop_at=20, key_at=16)
    table.remove([0, 3])
    journal.rollback()
    assert snapshot(table) == before
    assert [one.num_output_tokens for one in table.requests] == [0, 0, 0, 0]
