"""Shares of a step: merged in order, rows taken out with their blocks."""

from __future__ import annotations

import numpy as np

from twinserve.sched_core.schedule import Schedule, Share


def share(*rows: tuple[int, int, int, int]) -> Share:
    """Rows as (row, computed, tokens, blocks)."""
    row, computed, tokens, num_blocks = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return Share(row, computed, tokens, computed + tokens, num_blocks)


def test_shares_keep_scheduling_order() -> None:
    schedule = Schedule()
    schedule.add(share((2, 8, 1, 1), (0, 4, 1, 0)), [7])
    schedule.add(share((1, 0, 5, 2)), [3, 4])
    merged = schedule.merged()
    assert merged.rows.tolist() == [2, 0, 1]
    assert merged.tokens.tolist() == [1, 1, 5]
    assert schedule.block_ids().tolist() == [7, 3, 4]
    assert schedule.without(np.array([0, 1, 2, 3])).tolist() == [3]


def test_entering_rows_come_after_all_shares() -> None:
    schedule = Schedule()
    schedule.add(share((0, 4, 1, 0)), [])
    schedule.add_row(1, 32, 20, [5, 6])
    schedule.add_row(2, 0, 3, [9])
    merged = schedule.merged()
    assert [column.tolist() for column in merged] == [[0, 1, 2], [4, 32, 0], [1, 20, 3], [5, 52, 3], [0, 2, 1]]
    assert schedule.block_ids().tolist() == [5, 6, 9]


def test_removed_row_takes_its_own_blocks_along() -> None:
    schedule = Schedule()
    schedule.add(share((0, 0, 4, 1), (1, 0, 9, 3), (2, 0, 4, 1)), [10, 20, 21, 22, 30])
    schedule.add(share((3, 0, 4, 1)), [40])
    assert schedule.remove(1) == 9
    assert schedule.block_ids().tolist() == [10, 30, 40]
    assert schedule.remove(3) == 4
    assert schedule.block_ids().tolist() == [10, 30]
    assert schedule.remove(5) == 0
    assert schedule.merged().rows.tolist() == [0, 2]


def test_schedule_whose_rows_were_all_removed_is_empty() -> None:
    schedule = Schedule()
    schedule.add(share((0, 0, 4, 1)), [1])
    schedule.remove(0)
    assert not schedule
    assert schedule.merged().rows.tolist() == []
