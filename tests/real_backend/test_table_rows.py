"""Block tables in the staging buffer: after every step they show what the step's rows read."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from real_backend.table_rows import NOBODY, ShownTables, TableRows

FILLER, NUM_SLOTS, MAX_BLOCKS, BLOCK_SIZE = 99, 4, 6, 4


class Requests:
    """A table of requests that come, grow by tokens and leave; block ids are handed out in order."""

    def __init__(self) -> None:
        self.table = np.full((NUM_SLOTS, MAX_BLOCKS), FILLER, dtype=np.int32)
        self.tenants = np.zeros(NUM_SLOTS, dtype=np.int64)
        self.lengths = np.zeros(NUM_SLOTS, dtype=np.int64)
        self._next_block = 0
        self._next_tenant = 1

    def arrive(self, slot: int) -> None:
        self.table[slot] = FILLER
        self.lengths[slot] = 0
        self.tenants[slot] = self._next_tenant
        self._next_tenant += 1

    def grow(self, slot: int, num_tokens: int) -> int:
        grown = min(int(self.lengths[slot]) + num_tokens, MAX_BLOCKS * BLOCK_SIZE)
        num_tokens = grown - int(self.lengths[slot])
        for column in range(-(-int(self.lengths[slot]) // BLOCK_SIZE), -(-grown // BLOCK_SIZE)):
            self.table[slot, column] = self._next_block
            self._next_block += 1
        self.lengths[slot] = grown
        return num_tokens

    def rows(self, slots: list[int], num_decodes: int) -> TableRows:
        owners = np.array(slots, dtype=np.int64)
        last = np.maximum(self.lengths[owners] - 1, 0) // BLOCK_SIZE
        return TableRows(
            table=self.table, owners=owners, tenants=self.tenants[owners], last_columns=last, num_decodes=num_decodes
        )


moves = st.tuples(st.permutations(range(NUM_SLOTS)), st.integers(1, NUM_SLOTS), st.integers(1, 9), st.booleans())


@given(steps=st.lists(moves, max_size=12))
def test_every_row_of_a_step_shows_its_requests_blocks_and_rows_beyond_it_can_be_hidden(steps) -> None:
    requests = Requests()
    for slot in range(NUM_SLOTS):
        requests.arrive(slot)
        requests.grow(slot, 3)
    staging = np.full((NUM_SLOTS, MAX_BLOCKS), FILLER, dtype=np.int32)
    shown = ShownTables(staging, FILLER)
    for order, count, num_tokens, replaces in steps:
        slots = list(order)[:count]
        if replaces:
            requests.arrive(slots[-1])
        decodes = slots[: count - 1]
        for slot in decodes:
            requests.grow(slot, 1)
        requests.grow(slots[-1], num_tokens)  # a prefill, which may get several blocks
        shown.show(requests.rows(slots, len(decodes)))
        assert staging[:count].tolist() == requests.table[slots].tolist()
        shown.hide(count, NUM_SLOTS)
        assert (staging[count:] == FILLER).all()


def test_a_decode_row_that_stays_costs_one_entry() -> None:
    """The others are not looked at again: the staging buffer keeps what it shows."""
    requests = Requests()
    requests.arrive(0)
    requests.grow(0, 3)
    staging = np.full((1, MAX_BLOCKS), FILLER, dtype=np.int32)
    shown = ShownTables(staging, FILLER)
    shown.show(requests.rows([0], 1))
    staging[0, 0] = 42
    requests.grow(0, 2)
    shown.show(requests.rows([0], 1))
    assert staging[0].tolist() == [42, 1, *[FILLER] * (MAX_BLOCKS - 2)]


def test_filler_rows_show_the_filler_block() -> None:
    requests = Requests()
    requests.arrive(0)
    requests.grow(0, 9)
    staging = np.full((2, MAX_BLOCKS), FILLER, dtype=np.int32)
    shown = ShownTables(staging, FILLER)
    shown.show(requests.rows([0], 0))
    filler = TableRows.of_filler(2, 2, MAX_BLOCKS, FILLER)
    assert set(filler.tenants.tolist()) == {NOBODY}
    shown.show(filler)
    assert (staging == FILLER).all()
