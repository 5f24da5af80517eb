"""Building the flat batch: the worked example of the nano-vllm-v1 note, and the shapes that trip simpler engines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from real_backend.batch import build_batch
from real_backend.request_state import RequestTables
from sched_core.plan import StepPlan

BLOCK_SIZE = 4


def make_plan(computed, new, samples, preempted=()):
    rows = len(computed)
    return StepPlan(
        step_id=0,
        request_ids=np.arange(rows),
        num_computed=np.array(computed, dtype=np.int64),
        num_new=np.array(new, dtype=np.int64),
        samples=np.array(samples, dtype=bool),
        num_new_blocks=np.zeros(rows, dtype=np.int64),
        new_block_ids=np.empty(0, dtype=np.int64),
        started=(),
        preempted=preempted,
        num_tokens=sum(new),
        num_samples=sum(samples),
        num_waiting=0,
        num_running=rows,
        num_free_blocks=0,
    )


def tables(token_rows, block_rows, filler=-1):
    tokens = np.zeros((len(token_rows), 64), dtype=np.int64)
    blocks = np.full((len(block_rows), 16), filler, dtype=np.int32)
    for row, ids in enumerate(token_rows):
        tokens[row, : len(ids)] = ids
    for row, ids in enumerate(block_rows):
        blocks[row, : len(ids)] = ids
    return RequestTables(tokens, blocks, np.arange(len(token_rows)) + 1, BLOCK_SIZE)


@pytest.fixture
def note():
    """Sequences A (decode), B (chunk behind a cached prefix) and C (fresh prefill) of the note."""
    plan = make_plan(computed=[6, 4, 0], new=[1, 3, 4], samples=[True, False, True])
    return plan, tables([range(11, 18), range(21, 31), range(31, 35)], [[5, 2], [7, 9], [3]])


def test_the_note_example_gives_every_value_of_the_note(note):
    plan, known = note
    batch = build_batch(plan, known, np.arange(3))
    assert batch.input_ids.tolist() == [17, 25, 26, 27, 31, 32, 33, 34]
    assert batch.positions.tolist() == [6, 4, 5, 6, 0, 1, 2, 3]
    assert batch.cu_seqlens_q.tolist() == [0, 1, 4, 8]
    assert batch.cu_seqlens_k.tolist() == [0, 7, 14, 18]
    assert batch.max_seqlen_q == 4
    assert batch.max_seqlen_k == 7
    assert batch.slot_mapping.tolist() == [10, 36, 37, 38, 12, 13, 14, 15]
    assert batch.context_lens.tolist() == [7, 7, 4]
    assert batch.table_rows.table[batch.table_rows.owners, :2].tolist() == [[5, 2], [7, 9], [3, -1]]
    assert batch.table_rows.last_columns.tolist() == [1, 1, 0]
    assert batch.logits_tokens.tolist() == [0, 7]


def test_decode_rows_come_first_and_sampling_rows_keep_the_order_of_the_plan():
    plan = make_plan(computed=[4, 6, 0, 2], new=[3, 1, 4, 1], samples=[True, True, False, True])
    known = tables([range(10, 20), range(20, 30), range(30, 40), range(40, 50)], [[1, 2], [3, 4], [5], [6]])
    batch = build_batch(plan, known, np.arange(4))
    assert batch.input_ids.tolist() == [26, 42, 14, 15, 16, 30, 31, 32, 33]
    assert batch.num_decodes == 2
    assert batch.context_lens.tolist() == [7, 3, 7, 4]
    assert batch.logits_tokens.tolist() == [4, 0, 1]  # plan rows 0, 1 and 3


def test_a_first_chunk_may_be_shorter_than_a_block():
    plan = make_plan(computed=[0], new=[3], samples=[False])
    known = tables([range(9)], [[2]])
    batch = build_batch(plan, known, np.arange(1))
    assert batch.slot_mapping.tolist() == [8, 9, 10]


def test_no_row_may_need_logits():
    plan = make_plan(computed=[0, 4], new=[2, 4], samples=[False, False])
    known = tables([range(9), range(20)], [[0], [1, 2]])
    batch = build_batch(plan, known, np.arange(2))
    assert batch.logits_tokens.tolist() == []


def test_rows_are_read_from_where_their_request_lives():
    plan = make_plan(computed=[1, 0], new=[1, 2], samples=[True, True])
    known = tables([range(9), range(10, 20), range(20, 30)], [[0], [1], [2]])
    batch = build_batch(plan, known, np.array([2, 1]))
    assert batch.input_ids.tolist() == [21, 10, 11]
    assert batch.slot_mapping.tolist() == [9, 4, 5]


steps = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12), st.booleans()), min_size=1, max_size=6)
decode_steps = st.lists(st.tuples(st.integers(0, 20), st.just(1), st.booleans()), min_size=1, max_size=6)


@given(rows=steps | decode_steps)
def test_every_token_goes_to_the_block_of_its_position(rows):
    """Against a loop over rows and tokens."""
    computed, new, samples = zip(*rows, strict=True)
    plan = make_plan(computed, new, samples)
    count = len(rows)
    tokens = np.random.default_rng(0).integers(0, 1000, (count, 64))
    blocks = np.random.default_rng(1).permutation(count * 16).reshape(count, 16).astype(np.int32)
    known = RequestTables(tokens, blocks, np.arange(count) + 1, BLOCK_SIZE)
    batch = build_batch(plan, known, np.arange(count))
    decodes_first = sorted(range(count), key=lambda row: new[row] > 1)
    wanted = [(row, place) for row in decodes_first for place in range(computed[row], computed[row] + new[row])]
    assert batch.input_ids.tolist() == [tokens[row, place] for row, place in wanted]
    assert batch.positions.tolist() == [place for _, place in wanted]
    slots = [blocks[row, place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE for row, place in wanted]
    assert batch.slot_mapping.tolist() == slots
    last = {row: index for index, (row, _) in enumerate(wanted)}
    assert batch.logits_tokens.tolist() == [last[row] for row in range(count) if samples[row]]
    assert batch.num_decodes == new.count(1)
    assert all(batch.cu_seqlens_q[1 : batch.num_decodes + 1] == np.arange(1, batch.num_decodes + 1))
