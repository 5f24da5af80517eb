"""Paged attention for rows with one new token: memory bound, so long rows are split among programs."""

from __future__ import annotations

import triton
import triton.language as tl

from twinserve.real_backend.kernels.triton_paged import attend_block


@triton.jit
def decode_kernel(
    q_ptr: tl.tensor, k_ptr: tl.tensor, v_ptr: tl.tensor, out_ptr: tl.tensor, partial_ptr: tl.tensor,
    partial_lse_ptr: tl.tensor, cu_seqlens_q_ptr: tl.tensor, seqused_k_ptr: tl.tensor, block_table_ptr: tl.tensor,
    q_stride: tl.tensor, table_stride: tl.tensor, scale_log2: tl.tensor,
    NUM_KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, IS_SPLIT: tl.constexpr,
) -> None:  # fmt: skip
    """Program (kv head, row, split): the GROUP query heads of a kv head over one part of the row's keys.

    Rows that do not have exactly one new token are left to the prefill kernel. With IS_SPLIT the result is the part's
    own average and the log2 of its total weight, for ``combine_kernel``.
    """
    kv_head, row, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_splits = tl.num_programs(2)
    token = tl.load(cu_seqlens_q_ptr + row).to(tl.int64)
    num_new = tl.load(cu_seqlens_q_ptr + row + 1) - token
    num_keys = tl.load(seqused_k_ptr + row)
    part_size = keys_per_split(num_keys, num_splits, BLOCK_N)
    begin = split * part_size
    if (num_new != 1) | (begin >= num_keys):
        return
    end = tl.minimum(begin + part_size, num_keys)
    lines, dims = tl.arange(0, GROUP_BLOCK), tl.arange(0, HEAD_DIM)
    heads, valid = kv_head * GROUP + lines, lines < GROUP
    q = tl.load(q_ptr + token * q_stride + (heads * HEAD_DIM)[:, None] + dims[None, :], mask=valid[:, None], other=0.0)
    kv_offset = kv_head * HEAD_DIM
    acc, largest, total = _attend_part(
        q, k_ptr + kv_offset, v_ptr + kv_offset, block_table_ptr + row.to(tl.int64) * table_stride,
        begin, end, scale_log2, NUM_KV_HEADS * HEAD_DIM, PAGE_SIZE, GROUP_BLOCK, BLOCK_N, HEAD_DIM,
    )  # fmt: skip
    acc /= total[:, None]
    if IS_SPLIT:
        places = (row * (NUM_KV_HEADS * GROUP) + heads) * num_splits + split
        tl.store(partial_ptr + places[:, None] * HEAD_DIM + dims[None, :], acc, mask=valid[:, None])
        tl.store(partial_lse_ptr + places, largest + tl.log2(total), mask=valid)
    else:
        places = token * (NUM_KV_HEADS * GROUP) + heads
        tl.store(out_ptr + places[:, None] * HEAD_DIM + dims[None, :], acc, mask=valid[:, None])


@triton.jit
def keys_per_split(num_keys: tl.tensor, num_splits: tl.tensor, BLOCK_N: tl.constexpr) -> tl.tensor:
    """A whole number of blocks, as even as that allows; the last splits of a short row get none."""
    return tl.cdiv(tl.cdiv(num_keys, num_splits), BLOCK_N) * BLOCK_N


@triton.jit
def _attend_part(
    q: tl.tensor, k_ptr: tl.tensor, v_ptr: tl.tensor, table: tl.tensor, begin: tl.tensor, end: tl.tensor,
    scale_log2: tl.tensor,
    TOKEN_STRIDE: tl.constexpr, PAGE_SIZE: tl.constexpr, GROUP_BLOCK: tl.constexpr, BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Keys ``begin`` (a multiple of BLOCK_N) to ``end``; only the last block can be partly outside."""
    acc = tl.zeros([GROUP_BLOCK, HEAD_DIM], dtype=tl.float32)
    largest = tl.full([GROUP_BLOCK], float("-inf"), dtype=tl.float32)
    total = tl.zeros([GROUP_BLOCK], dtype=tl.float32)
    last_visible = tl.zeros([GROUP_BLOCK], dtype=tl.int32) + (end - 1)
    whole_end = end // BLOCK_N * BLOCK_N
    for start in range(begin, whole_end, BLOCK_N):
        acc, largest, total = attend_block(
            acc, largest, total, q, k_ptr, v_ptr, table, start, end, last_visible, scale_log2,
            TOKEN_STRIDE, PAGE_SIZE, BLOCK_N, HEAD_DIM, False,
        )  # fmt: skip
    if whole_end < end:
        acc, largest, total = attend_block(
            acc, largest, total, q, k_ptr, v_ptr, table, whole_end, end, last_visible, scale_log2,
            TOKEN_STRIDE, PAGE_SIZE, BLOCK_N, HEAD_DIM, True,
        )  # fmt: skip
    return acc, largest, total


@triton.jit(do_not_specialize=["num_splits"])
def combine_kernel(
    partial_ptr: tl.tensor, partial_lse_ptr: tl.tensor, out_ptr: tl.tensor, cu_seqlens_q_ptr: tl.tensor,
    seqused_k_ptr: tl.tensor, num_splits: tl.tensor,
    NUM_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, MAX_SPLITS: tl.constexpr,
) -> None:  # fmt: skip
    """Program (head, row): the parts' averages, each weighted by its total; at most MAX_SPLITS, a power of two."""
    head, row = tl.program_id(0), tl.program_id(1)
    token = tl.load(cu_seqlens_q_ptr + row).to(tl.int64)
    num_new = tl.load(cu_seqlens_q_ptr + row + 1) - token
    if num_new != 1:
        return
    num_keys = tl.load(seqused_k_ptr + row)
    splits, dims = tl.arange(0, MAX_SPLITS), tl.arange(0, HEAD_DIM)
    written = (splits < num_splits) & (splits * keys_per_split(num_keys, num_splits, BLOCK_N) < num_keys)
    places = (row * NUM_HEADS + head) * num_splits + splits
    lse = tl.load(partial_lse_ptr + places, mask=written, other=float("-inf"))
    parts = tl.load(partial_ptr + places[:, None] * HEAD_DIM + dims[None, :], mask=written[:, None], other=0.0)
    weights = tl.exp2(lse - tl.max(lse, axis=0))
    average = tl.sum(parts * weights[:, None], axis=0) / tl.sum(weights, axis=0)
    tl.store(out_ptr + (token * NUM_HEADS + head) * HEAD_DIM + dims, average)
