"""The pointwise kernels in Triton: one launch each, every value read once and written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from twinserve.real_backend.kernels.base import QkvStore


@triton.jit
def _rms_norm_kernel(
    x_ptr: tl.tensor, weight_ptr: tl.tensor, out_ptr: tl.tensor, eps: tl.tensor,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """One program a row."""
    columns = tl.arange(0, BLOCK)
    inside = columns < WIDTH
    row = tl.program_id(0).to(tl.int64) * WIDTH
    x = tl.load(x_ptr + row + columns, mask=inside, other=0.0).to(tl.float32)
    inverse_rms = tl.rsqrt(tl.sum(x * x, axis=0) / WIDTH + eps)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row + columns, x * inverse_rms * weight, mask=inside)


@triton.jit
def _silu_mul_kernel(
    gate_up_ptr: tl.tensor, out_ptr: tl.tensor,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """Program (row, part): BLOCK columns of one row."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    gate = tl.load(gate_up_ptr + row * 2 * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + (row * 2 + 1) * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * WIDTH + columns, gate * tl.sigmoid(gate) * up, mask=inside)


@triton.jit
def _load_halves(pointers: tl.tensor, mask: tl.tensor, HALF: tl.constexpr) -> tl.tensor:
    first = tl.load(pointers, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(pointers + HALF, mask=mask, other=0.0).to(tl.float32)
    return first, second


@triton.jit
def _norm_rope_heads(
    source: tl.tensor, target: tl.tensor, mask: tl.tensor, norm: tl.tensor, rotation: tl.tensor, inside: tl.tensor,
    eps: tl.tensor,
    NORMALISE: tl.constexpr, HALF: tl.constexpr,
) -> None:  # fmt: skip
    """Heads [rows, HALF_BLOCK], given by pointers to their first halves; norm and rotation are [1, HALF_BLOCK]."""
    first, second = _load_halves(source, mask, HALF)
    if NORMALISE:
        scale = tl.rsqrt(tl.sum(first * first + second * second, axis=1) / (2 * HALF) + eps)[:, None]
        weight, other_weight = _load_halves(norm, inside, HALF)
        first *= scale * weight
        second *= scale * other_weight
    cos, sin = _load_halves(rotation, inside, HALF)
    tl.store(target, first * cos - second * sin, mask=mask)
    tl.store(target + HALF, second * cos + first * sin, mask=mask)


@triton.jit
def _norm_rope_store_kernel(
    qkv_ptr: tl.tensor, positions_ptr: tl.tensor, slots_ptr: tl.tensor, cos_sin_ptr: tl.tensor, q_norm_ptr: tl.tensor,
    k_norm_ptr: tl.tensor, k_cache_ptr: tl.tensor, v_cache_ptr: tl.tensor, eps: tl.tensor,
    NORMALISE: tl.constexpr, NUM_HEADS: tl.constexpr, HEADS_BLOCK: tl.constexpr, NUM_KV_HEADS: tl.constexpr,
    KV_HEADS_BLOCK: tl.constexpr, HALF: tl.constexpr, HALF_BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """One program a token: all its q heads, then its k and v heads; a head is two halves to rotate."""
    token = tl.program_id(0).to(tl.int64)
    dims = tl.arange(0, HALF_BLOCK)[None, :]
    inside = dims < HALF
    rotation = cos_sin_ptr + tl.load(positions_ptr + token) * (2 * HALF) + dims
    token_ptr = qkv_ptr + token * ((NUM_HEADS + 2 * NUM_KV_HEADS) * 2 * HALF) + dims
    heads = tl.arange(0, HEADS_BLOCK)[:, None]
    q = token_ptr + heads * (2 * HALF)
    _norm_rope_heads(q, q, (heads < NUM_HEADS) & inside, q_norm_ptr + dims, rotation, inside, eps, NORMALISE, HALF)
    slot = tl.load(slots_ptr + token)
    if slot >= 0:
        kv_heads = tl.arange(0, KV_HEADS_BLOCK)[:, None]
        mask = (kv_heads < NUM_KV_HEADS) & inside
        k = token_ptr + (NUM_HEADS + kv_heads) * (2 * HALF)
        place = (slot * NUM_KV_HEADS + kv_heads) * (2 * HALF) + dims
        _norm_rope_heads(k, k_cache_ptr + place, mask, k_norm_ptr + dims, rotation, inside, eps, NORMALISE, HALF)
        first, second = _load_halves(k + NUM_KV_HEADS * 2 * HALF, mask, HALF)
        tl.store(v_cache_ptr + place, first, mask=mask)
        tl.store(v_cache_ptr + place + HALF, second, mask=mask)


class TritonKernels:
    """``PointwiseKernels`` in Triton. All tensors must be contiguous."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        out = torch.empty_like(x)
        _launch_norm(x, weight, out, eps)
        return out

    def linear_add_norm(
        self, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor, norm: torch.Tensor, eps: float
    ) -> torch.Tensor:
        # The product adds to the residual itself: no rounding of its result, and less memory traffic for both together.
        wider = {} if x.dtype == residual.dtype else {"out_dtype": residual.dtype}
        torch.addmm(residual, x, weight.T, out=residual, **wider)
        out = torch.empty_like(residual, dtype=x.dtype)
        _launch_norm(residual, norm, out, eps)
        return out

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        num_tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty((num_tokens, width), device=gate_up.device, dtype=gate_up.dtype)
        if num_tokens:
            block = min(1024, triton.next_power_of_2(width))
            grid = (num_tokens, triton.cdiv(width, block))
            _silu_mul_kernel[grid](gate_up, out, WIDTH=width, BLOCK=block, num_warps=4)
        return out

    def norm_rope_store(
        self, qkv: torch.Tensor, positions: torch.Tensor, slot_mapping: torch.Tensor, store: QkvStore
    ) -> None:
        num_kv_heads, head_dim = store.k_cache.shape[2:]
        num_heads = qkv.shape[1] // head_dim - 2 * num_kv_heads
        if len(qkv) == 0:
            return
        _norm_rope_store_kernel[(len(qkv),)](
            qkv,
            positions,
            slot_mapping,
            store.cos_sin,
            store.q_norm if store.q_norm is not None else qkv,
            store.k_norm if store.k_norm is not None else qkv,
            store.k_cache,
            store.v_cache,
            store.eps,
            NORMALISE=store.q_norm is not None,
            NUM_HEADS=num_heads,
            HEADS_BLOCK=triton.next_power_of_2(num_heads),
            NUM_KV_HEADS=num_kv_heads,
            KV_HEADS_BLOCK=triton.next_power_of_2(num_kv_heads),
            HALF=head_dim // 2,
            HALF_BLOCK=triton.next_power_of_2(head_dim // 2),
            num_warps=4,
        )


def _launch_norm(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, eps: float) -> None:
    num_tokens, width = x.shape
    if num_tokens == 0:
        return
    block = triton.next_power_of_2(width)
    num_warps = min(max(block // 512, 1), 16)
    _rms_norm_kernel[(num_tokens,)](x, weight, out, eps, WIDTH=width, BLOCK=block, num_warps=num_warps)
