"""What the paged attention kernels share: where keys lie, and one step of the running softmax."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def key_offsets(
    table: tl.tensor, start: tl.tensor, num_keys: tl.tensor,
    TOKEN_STRIDE: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Element offsets (int64 [BLOCK_N]) in the cache of keys ``start`` onwards; those past the last are in page 0.

    A block inside one page needs one look-up, any other one look-up per key. ``start`` is a multiple of BLOCK_N.
    """
    within = tl.arange(0, BLOCK_N)
    if PAGE_SIZE % BLOCK_N == 0:
        page = tl.load(table + start // PAGE_SIZE).to(tl.int64)
        return (page * PAGE_SIZE + start % PAGE_SIZE + within) * TOKEN_STRIDE
    else:  # noqa: RET505 (two returns of one traced branch must be if and else)
        keys = start + within
        pages = tl.load(table + keys // PAGE_SIZE, mask=keys < num_keys, other=0).to(tl.int64)
        return (pages * PAGE_SIZE + keys % PAGE_SIZE) * TOKEN_STRIDE


@triton.jit
def attend_block(
    acc: tl.tensor, largest: tl.tensor, total: tl.tensor, q: tl.tensor, k_ptr: tl.tensor, v_ptr: tl.tensor,
    table: tl.tensor, start: tl.tensor, num_keys: tl.tensor, last_visible: tl.tensor, scale_log2: tl.tensor,
    TOKEN_STRIDE: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    MASKED: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """The running softmax (acc [M, D], largest and total [M]) after BLOCK_N more keys.

    Without MASKED every key must be visible to every row; with it row ``i`` sees keys up to ``last_visible[i]``, and
    values past the row's last key are not read (they may be NaN, which a weight of 0 would not remove). Scores are in
    units of log 2.
    """
    dims = tl.arange(0, HEAD_DIM)
    offsets = key_offsets(table, start, num_keys, TOKEN_STRIDE, PAGE_SIZE, BLOCK_N)[:, None] + dims[None, :]
    k = tl.load(k_ptr + offsets)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
    if MASKED:
        keys = start + tl.arange(0, BLOCK_N)
        scores = tl.where(keys[None, :] <= last_visible[:, None], scores, float("-inf"))
        v = tl.load(v_ptr + offsets, mask=(keys < num_keys)[:, None], other=0.0)
    else:
        v = tl.load(v_ptr + offsets)
    new_largest = tl.maximum(largest, tl.max(scores, axis=1))
    weights = tl.exp2(scores - new_largest[:, None])
    shrink = tl.exp2(largest - new_largest)
    total = total * shrink + tl.sum(weights, axis=1)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
    return acc, new_largest, total
