"""The derived inputs of a step (``expansion.expand_rows``) in one launch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

_BLOCK = 256
_PARTS = 4
"""Programs per row: a chunk of thousands of tokens is not left to one."""


@triton.jit(do_not_specialize=["num_rows", "num_tokens"])
def _expand_kernel(
    row_slots_ptr: tl.tensor, num_computed_ptr: tl.tensor, cu_seqlens_q_ptr: tl.tensor, sample_rows_ptr: tl.tensor,
    block_ids_ptr: tl.tensor, temperature_ptr: tl.tensor, top_p_ptr: tl.tensor, top_k_ptr: tl.tensor,
    seed_ptr: tl.tensor,
    positions_ptr: tl.tensor, slot_mapping_ptr: tl.tensor, cu_seqlens_k_ptr: tl.tensor, seqused_k_ptr: tl.tensor,
    block_table_ptr: tl.tensor, logits_tokens_ptr: tl.tensor, sample_position_ptr: tl.tensor,
    row_temperature_ptr: tl.tensor, row_top_p_ptr: tl.tensor, row_top_k_ptr: tl.tensor, row_seed_ptr: tl.tensor,
    num_rows: tl.tensor, num_tokens: tl.tensor,
    FILLER_SLOT: tl.constexpr, MAX_BLOCKS: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Program (row, part): a part of the row's tokens, of its block table, and of the tokens behind all rows."""
    row, part = tl.program_id(0), tl.program_id(1)
    first, stride = part * BLOCK, tl.num_programs(1) * BLOCK
    slot, computed = tl.load(row_slots_ptr + row), tl.load(num_computed_ptr + row)
    begin, end = tl.load(cu_seqlens_q_ptr + row), tl.load(cu_seqlens_q_ptr + row + 1)
    keys = computed + end - begin
    table = block_ids_ptr + slot.to(tl.int64) * MAX_BLOCKS
    _expand_tokens(
        table, positions_ptr + begin, slot_mapping_ptr + begin, computed, end - begin, slot == FILLER_SLOT,
        first, stride, BLOCK_SIZE, BLOCK,
    )  # fmt: skip
    _copy_table(table, block_table_ptr + row.to(tl.int64) * MAX_BLOCKS, tl.cdiv(keys, BLOCK_SIZE), first, stride, BLOCK)
    behind = tl.load(cu_seqlens_q_ptr + num_rows) + row * stride + first
    for start in range(behind, num_tokens, num_rows * stride):
        places = start + tl.arange(0, BLOCK)
        tl.store(positions_ptr + places, tl.zeros([BLOCK], tl.int64), mask=places < num_tokens)
        tl.store(slot_mapping_ptr + places, tl.full([BLOCK], -1, tl.int64), mask=places < num_tokens)
    if part == 0:
        tl.store(seqused_k_ptr + row, keys)
        tl.store(cu_seqlens_k_ptr + row + 1, _keys_until(row, num_computed_ptr, cu_seqlens_q_ptr, ROWS_BLOCK))
        sampled = tl.load(sample_rows_ptr + row)
        begin, end = tl.load(cu_seqlens_q_ptr + sampled), tl.load(cu_seqlens_q_ptr + sampled + 1)
        position = tl.load(num_computed_ptr + sampled) + end - begin
        tl.store(logits_tokens_ptr + row, (end - 1).to(tl.int64))
        tl.store(sample_position_ptr + row, position.to(tl.int64))
        slot = tl.load(row_slots_ptr + sampled)
        tl.store(row_temperature_ptr + row, tl.load(temperature_ptr + slot))
        tl.store(row_top_p_ptr + row, tl.load(top_p_ptr + slot))
        tl.store(row_top_k_ptr + row, tl.load(top_k_ptr + slot))
        tl.store(row_seed_ptr + row, tl.load(seed_ptr + slot))


@triton.jit
def _expand_tokens(
    table: tl.tensor, positions_ptr: tl.tensor, slot_mapping_ptr: tl.tensor, computed: tl.tensor, new: tl.tensor,
    is_filler: tl.tensor, first: tl.tensor, stride: tl.tensor,
    BLOCK_SIZE: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Position and KV slot of a row's tokens ``first ..``, ``BLOCK`` out of every ``stride``."""
    for start in range(first, new, stride):
        places = start + tl.arange(0, BLOCK)
        inside, position = places < new, computed + places
        page = tl.load(table + position // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)
        slot = tl.where(is_filler, -1, page * BLOCK_SIZE + position % BLOCK_SIZE)
        tl.store(positions_ptr + places, position.to(tl.int64), mask=inside)
        tl.store(slot_mapping_ptr + places, slot, mask=inside)


@triton.jit
def _keys_until(
    row: tl.tensor, num_computed_ptr: tl.tensor, cu_seqlens_q_ptr: tl.tensor, ROWS_BLOCK: tl.constexpr
) -> tl.tensor:
    """The keys of the rows up to this one."""
    rows = tl.arange(0, ROWS_BLOCK)
    computed = tl.load(num_computed_ptr + rows, mask=rows <= row, other=0)
    return tl.sum(computed, axis=0) + tl.load(cu_seqlens_q_ptr + row + 1)


@triton.jit
def _copy_table(
    source: tl.tensor, target: tl.tensor, num_blocks: tl.tensor, first: tl.tensor, stride: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    for start in range(first, num_blocks, stride):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < num_blocks
        tl.store(target + columns, tl.load(source + columns, mask=inside, other=0), mask=inside)


_INPUTS = (
    "row_slots", "num_computed", "cu_seqlens_q", "sample_rows", "block_ids", "temperature", "top_p", "top_k", "seed",
)  # fmt: skip
_OUTPUTS = (
    "positions", "slot_mapping", "cu_seqlens_k", "seqused_k", "block_table", "logits_tokens", "sample_position",
    "row_temperature", "row_top_p", "row_top_k", "row_seed",
)  # fmt: skip


def expand_with_triton(fields: Mapping[str, torch.Tensor], num_rows: int, num_tokens: int, block_size: int) -> None:
    num_slots, max_blocks = fields["block_ids"].shape
    _expand_kernel[(num_rows, _PARTS)](
        *(fields[name] for name in (*_INPUTS, *_OUTPUTS)),
        num_rows,
        num_tokens,
        FILLER_SLOT=num_slots - 1,
        MAX_BLOCKS=max_blocks,
        BLOCK_SIZE=block_size,
        ROWS_BLOCK=triton.next_power_of_2(len(fields["row_slots"])),
        BLOCK=_BLOCK,
        num_warps=4,
    )
