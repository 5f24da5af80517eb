"""Paged attention for rows with many new tokens: tiles of queries, causal, grouped query heads packed together."""

from __future__ import annotations

import triton
import triton.language as tl

from twinserve.real_backend.kernels.triton_paged import attend_block


@triton.jit(do_not_specialize=["num_rows"])
def prefill_kernel(
    q_ptr: tl.tensor, k_ptr: tl.tensor, v_ptr: tl.tensor, out_ptr: tl.tensor, tile_row_ptr: tl.tensor,
    tile_start_ptr: tl.tensor, cu_seqlens_q_ptr: tl.tensor, seqused_k_ptr: tl.tensor, block_table_ptr: tl.tensor,
    q_stride: tl.tensor, table_stride: tl.tensor, num_rows: tl.tensor, scale_log2: tl.tensor,
    NUM_KV_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
) -> None:  # fmt: skip
    """Program (kv head, tile): BLOCK_M // GROUP queries of one row with the GROUP heads that share a kv head.

    Line ``m`` of the tile is query ``m // GROUP``, head ``m % GROUP``: both matrix products are then as tall as on
    ungrouped heads, and K and V are read once for the whole group. Tiles whose row is ``num_rows`` are padding.
    """
    kv_head = tl.program_id(0)
    row = tl.load(tile_row_ptr + tl.program_id(1))
    if row >= num_rows:
        return
    first_token = tl.load(cu_seqlens_q_ptr + row)
    num_new = tl.load(cu_seqlens_q_ptr + row + 1) - first_token
    num_keys = tl.load(seqused_k_ptr + row)
    first_query = tl.load(tile_start_ptr + tl.program_id(1))
    QUERIES: tl.constexpr = BLOCK_M // GROUP

    lines = tl.arange(0, BLOCK_M)
    queries = first_query + lines // GROUP
    valid = (lines < QUERIES * GROUP) & (queries < num_new)
    heads = kv_head * GROUP + lines % GROUP
    dims = tl.arange(0, HEAD_DIM)
    tokens = (first_token + queries).to(tl.int64)
    q_offsets = (tokens * q_stride + heads * HEAD_DIM)[:, None] + dims[None, :]
    q = tl.load(q_ptr + q_offsets, mask=valid[:, None], other=0.0)

    last_visible = num_keys - num_new + queries
    kv_offset = kv_head * HEAD_DIM
    acc, total = _attend_keys(
        q, k_ptr + kv_offset, v_ptr + kv_offset, block_table_ptr + row.to(tl.int64) * table_stride,
        num_keys, num_keys - num_new + first_query, last_visible, scale_log2,
        NUM_KV_HEADS * HEAD_DIM, PAGE_SIZE, BLOCK_M, BLOCK_N, HEAD_DIM, QUERIES,
    )  # fmt: skip
    out_offsets = (tokens * (NUM_KV_HEADS * GROUP) + heads)[:, None] * HEAD_DIM + dims[None, :]
    tl.store(out_ptr + out_offsets, acc / total[:, None], mask=valid[:, None])


@triton.jit
def _attend_keys(
    q: tl.tensor, k_ptr: tl.tensor, v_ptr: tl.tensor, table: tl.tensor, num_keys: tl.tensor, first_visible: tl.tensor,
    last_visible: tl.tensor, scale_log2: tl.tensor,
    TOKEN_STRIDE: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    HEAD_DIM: tl.constexpr, QUERIES: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Blocks that even the tile's first query sees whole need no mask; then the blocks on the diagonal."""
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    largest = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    unmasked_end = (first_visible + 1) // BLOCK_N * BLOCK_N
    for start in range(0, unmasked_end, BLOCK_N):
        acc, largest, total = attend_block(
            acc, largest, total, q, k_ptr, v_ptr, table, start, num_keys, last_visible, scale_log2,
            TOKEN_STRIDE, PAGE_SIZE, BLOCK_N, HEAD_DIM, False,
        )  # fmt: skip
    end = tl.minimum(first_visible + QUERIES, num_keys)
    for start in range(unmasked_end, end, BLOCK_N):
        acc, largest, total = attend_block(
            acc, largest, total, q, k_ptr, v_ptr, table, start, num_keys, last_visible, scale_log2,
            TOKEN_STRIDE, PAGE_SIZE, BLOCK_N, HEAD_DIM, True,
        )  # fmt: skip
    return acc, total
