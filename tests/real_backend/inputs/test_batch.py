"""From a plan to the inputs of the kernels: the nano-vllm-v1 note's example, and shapes that trip other engines."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.real_backend.devices import interpreted, on_gpu
from twinserve.real_backend.inputs.batch import build_batch
from twinserve.real_backend.inputs.buffers import Capacity, StepBuffers
from twinserve.real_backend.inputs.expansion import expand_with_torch
from twinserve.real_backend.inputs.request_tokens import RequestTokens
from twinserve.sched_core.dispatch import Dispatch, GraphMode
from twinserve.sched_core.plan import StepPlan

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


def expand_with_triton(*step):
    pytest.importorskip("triton")
    from twinserve.real_backend.kernels.triton_expand import expand_with_triton

    expand_with_triton(*step)


expansions = pytest.mark.parametrize(
    ("expand", "device"),
    [
        pytest.param(expand_with_torch, "cpu", id="torch"),
        pytest.param(expand_with_triton, "cpu", id="interpreted", marks=interpreted),
        pytest.param(expand_with_triton, "cuda", id="triton", marks=on_gpu),
    ],
)


class Engine:
    """Requests in the batch, request ``i`` in slot ``slots[i]`` of more, and what a plan's step then reads."""

    def __init__(self, token_rows, block_rows, slots=None, max_rows=8):
        self.slots = np.arange(len(token_rows)) if slots is None else np.array(slots)
        num_slots = int(self.slots.max()) + 1
        self.capacity = Capacity(max_tokens=128, max_rows=max_rows, max_blocks=16, num_slots=num_slots)
        self.tokens = RequestTokens.create(num_slots)
        self.block_rows = block_rows
        for slot, ids in zip(self.slots.tolist(), token_rows, strict=True):
            self.tokens.enter(slot, np.array(ids, dtype=np.int64))

    def step(self, plan, expand=expand_with_torch, device="cpu", choice=None):
        batch = build_batch(plan, self.tokens, self.slots)
        buffers = StepBuffers(self.capacity, torch.device(device), filler_block=99)
        for slot, ids in zip(self.slots.tolist(), self.block_rows, strict=True):
            buffers.host["block_ids"][slot, : len(ids)] = ids
            buffers.host["seed"][slot] = 1000 + slot
        choice = choice or Dispatch(mode=GraphMode.EAGER, num_padded_tokens=batch.num_tokens)
        num_rows = {GraphMode.EAGER: batch.num_rows, GraphMode.DECODE: choice.num_padded_tokens}
        buffers.fill(batch, choice)
        buffers.upload()
        rows = num_rows.get(choice.mode, self.capacity.max_rows)
        expand(buffers.device, rows, choice.num_padded_tokens, BLOCK_SIZE)
        return batch, {name: field.cpu().tolist() for name, field in buffers.device.items()}


@pytest.fixture
def note():
    """Sequences A (decode), B (chunk behind a cached prefix) and C (fresh prefill) of the note."""
    plan = make_plan(computed=[6, 4, 0], new=[1, 3, 4], samples=[True, False, True])
    return plan, Engine([range(11, 18), range(21, 31), range(31, 35)], [[5, 2], [7, 9], [3]])


@expansions
def test_the_note_example_gives_every_value_of_the_note(note, expand, device):
    plan, engine = note
    batch, fields = engine.step(plan, expand, device)
    assert batch.input_ids.tolist() == [17, 25, 26, 27, 31, 32, 33, 34]
    assert (batch.max_seqlen_q, batch.max_seqlen_k) == (4, 7)
    assert fields["positions"][:8] == [6, 4, 5, 6, 0, 1, 2, 3]
    assert fields["cu_seqlens_q"][:4] == [0, 1, 4, 8]
    assert fields["cu_seqlens_k"][:4] == [0, 7, 14, 18]
    assert fields["slot_mapping"][:8] == [10, 36, 37, 38, 12, 13, 14, 15]
    assert fields["seqused_k"][:3] == [7, 7, 4]
    assert [row[:2] for row in fields["block_table"][:2]] == [[5, 2], [7, 9]]
    assert fields["block_table"][2][0] == 3
    assert fields["logits_tokens"][:2] == [0, 7]
    assert fields["sample_position"][:2] == [7, 4]
    assert fields["row_seed"][:2] == [1000, 1002]


@expansions
def test_decode_rows_come_first_and_sampling_rows_keep_the_order_of_the_plan(expand, device):
    plan = make_plan(computed=[4, 6, 0, 2], new=[3, 1, 4, 1], samples=[True, True, False, True])
    engine = Engine([range(10, 20), range(20, 30), range(30, 40), range(40, 50)], [[1, 2], [3, 4], [5], [6]])
    batch, fields = engine.step(plan, expand, device)
    assert batch.input_ids.tolist() == [26, 42, 14, 15, 16, 30, 31, 32, 33]
    assert batch.num_decodes == 2
    assert fields["seqused_k"][:4] == [7, 3, 7, 4]
    assert fields["logits_tokens"][:3] == [4, 0, 1]  # plan rows 0, 1 and 3
    assert fields["row_seed"][:3] == [1000, 1001, 1003]


def test_a_first_chunk_may_be_shorter_than_a_block():
    plan = make_plan(computed=[0], new=[3], samples=[False])
    _, fields = Engine([range(9)], [[2]]).step(plan)
    assert fields["slot_mapping"][:3] == [8, 9, 10]


def test_no_row_may_need_logits():
    plan = make_plan(computed=[0, 4], new=[2, 4], samples=[False, False])
    batch, _ = Engine([range(9), range(20)], [[0], [1, 2]]).step(plan)
    assert batch.sample_rows.tolist() == []


def test_rows_are_read_from_where_their_request_lives():
    plan = make_plan(computed=[1, 0], new=[1, 2], samples=[True, True])
    batch, fields = Engine([range(20, 30), range(10, 20)], [[2], [1]], slots=[2, 1]).step(plan)
    assert batch.input_ids.tolist() == [21, 10, 11]
    assert fields["slot_mapping"][:3] == [9, 4, 5]


def test_a_single_token_is_the_last_sampled_one_or_lies_within_the_prompt():
    engine = Engine([range(10, 15), range(20, 25), range(30, 35)], [[1, 2], [3, 4], [5, 6]])
    engine.tokens.last_token_ids[:] = 7, 8, 9
    plan = make_plan(computed=[5, 3, 6], new=[1, 1, 1], samples=[True, False, True])
    assert engine.step(plan)[0].input_ids.tolist() == [7, 23, 9]


@expansions
@pytest.mark.parametrize("mode", [GraphMode.DECODE, GraphMode.MIXED])
def test_rows_and_tokens_that_pad_a_graph_store_nothing_and_see_one_key_of_the_filler_page(expand, device, mode):
    plan = make_plan(computed=[4, 6], new=[1, 1], samples=[True, True])
    choice = Dispatch(mode=mode, num_padded_tokens=5)
    _, fields = Engine([range(10), range(10)], [[1, 2], [3, 4]]).step(plan, expand, device, choice)
    num_rows = 5 if mode is GraphMode.DECODE else 8
    assert fields["slot_mapping"][:5] == [8, 18, -1, -1, -1]
    assert fields["positions"][:5] == [4, 6, 0, 0, 0]
    assert fields["seqused_k"][:num_rows] == [5, 7] + [1] * (num_rows - 2)
    assert [row[0] for row in fields["block_table"][2:num_rows]] == [99] * (num_rows - 2)
    ends = [2, 3, 4, 5] if mode is GraphMode.DECODE else [2] * 7
    assert fields["cu_seqlens_q"][2 : num_rows + 1] == ends
    assert fields["cu_seqlens_k"][2 : num_rows + 1] == list(range(12, 12 + num_rows - 1))


steps = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12), st.booleans()), min_size=1, max_size=6)
decode_steps = st.lists(st.tuples(st.integers(0, 20), st.just(1), st.booleans()), min_size=1, max_size=6)


@expansions
@given(rows=steps | decode_steps)
def test_every_token_goes_to_the_block_of_its_position(expand, device, rows):
    """Against a loop over rows and tokens."""
    computed, new, samples = zip(*rows, strict=True)
    count = len(rows)
    tokens = np.random.default_rng(0).integers(0, 1000, (count, 64))
    blocks = np.random.default_rng(1).permutation(count * 16).reshape(count, 16)
    batch, fields = Engine(tokens, blocks).step(make_plan(computed, new, samples), expand, device)
    decodes_first = sorted(range(count), key=lambda row: new[row] > 1)
    wanted = [(row, place) for row in decodes_first for place in range(computed[row], computed[row] + new[row])]
    assert batch.input_ids.tolist() == [tokens[row, place] for row, place in wanted]
    assert fields["positions"][: len(wanted)] == [place for _, place in wanted]
    slots = [blocks[row, place // BLOCK_SIZE] * BLOCK_SIZE + place % BLOCK_SIZE for row, place in wanted]
    assert fields["slot_mapping"][: len(wanted)] == slots
    last = {row: index for index, (row, _) in enumerate(wanted)}
    sampling = [row for row in range(count) if samples[row]]
    assert fields["logits_tokens"][: len(sampling)] == [last[row] for row in sampling]
    assert fields["sample_position"][: len(sampling)] == [computed[row] + new[row] for row in sampling]
    assert batch.num_decodes == new.count(1)
    for row, shown in zip(decodes_first, fields["block_table"], strict=False):
        num_blocks = -(-(computed[row] + new[row]) // BLOCK_SIZE)
        assert shown[:num_blocks] == blocks[row, :num_blocks].tolist()
