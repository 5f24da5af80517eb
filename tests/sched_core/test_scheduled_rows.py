"""Rows scheduled in a step: merged in order, taken out with their blocks, and never more tokens than the budget."""

from __future__ import annotations

import numpy as np

from twinserve.sched_core.scheduled_rows import RowGroup, ScheduledRows

BUDGET = 100


def add(scheduled: ScheduledRows, rows: list[tuple[int, int, int, int]], block_ids: list[int]) -> None:
    """Rows as (row, computed, tokens, blocks)."""
    row, computed, tokens, num_blocks = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    scheduled.add(RowGroup(row, computed, tokens, computed + tokens, int(tokens.sum())), num_blocks, block_ids)


def test_groups_keep_scheduling_order() -> None:
    scheduled = ScheduledRows(BUDGET)
    add(scheduled, [(2, 8, 1, 1), (0, 4, 1, 0)], [7])
    add(scheduled, [(1, 0, 5, 2)], [3, 4])
    merged, _ = scheduled.merged()
    assert merged.rows.tolist() == [2, 0, 1]
    assert merged.tokens.tolist() == [1, 1, 5]
    assert scheduled.block_ids().tolist() == [7, 3, 4]
    assert scheduled.without(np.array([0, 1, 2, 3])).tolist() == [3]


def test_entering_rows_come_after_all_groups() -> None:
    scheduled = ScheduledRows(BUDGET)
    add(scheduled, [(0, 4, 1, 0)], [])
    scheduled.add_entering(1, 32, 20, [5, 6])
    scheduled.add_entering(2, 0, 3, [9])
    merged, num_blocks = scheduled.merged()
    assert [column.tolist() for column in merged[:-1]] == [[0, 1, 2], [4, 32, 0], [1, 20, 3], [5, 52, 3]]
    assert (merged.num_tokens, num_blocks.tolist()) == (24, [0, 2, 1])
    assert scheduled.block_ids().tolist() == [5, 6, 9]


def test_removed_row_takes_its_own_blocks_along() -> None:
    scheduled = ScheduledRows(BUDGET)
    add(scheduled, [(0, 0, 4, 1), (1, 0, 9, 3), (2, 0, 4, 1)], [10, 20, 21, 22, 30])
    add(scheduled, [(3, 0, 4, 1)], [40])
    assert scheduled.remove(1) == 9
    assert scheduled.block_ids().tolist() == [10, 30, 40]
    assert scheduled.remove(3) == 4
    assert scheduled.block_ids().tolist() == [10, 30]
    assert scheduled.remove(5) == 0
    assert scheduled.merged()[0].rows.tolist() == [0, 2]
    assert scheduled.merged()[1].tolist() == [1, 1]


def test_budget_and_tokens_always_add_up() -> None:
    scheduled = ScheduledRows(BUDGET)
    seen = [(scheduled.num_tokens, scheduled.budget)]
    add(scheduled, [(0, 0, 4, 0), (1, 0, 9, 0)], [])
    seen.append((scheduled.num_tokens, scheduled.budget))
    scheduled.add_entering(2, 0, 7, [])
    seen.append((scheduled.num_tokens, scheduled.budget))
    scheduled.remove(1)
    seen.append((scheduled.num_tokens, scheduled.budget))
    assert [tokens for tokens, _ in seen] == [0, 13, 20, 11]
    assert all(tokens + budget == BUDGET for tokens, budget in seen)


def test_nothing_is_left_when_all_rows_were_removed() -> None:
    scheduled = ScheduledRows(BUDGET)
    add(scheduled, [(0, 0, 4, 1)], [1])
    scheduled.remove(0)
    assert scheduled.num_tokens == 0
    assert scheduled.merged()[0].rows.tolist() == []
