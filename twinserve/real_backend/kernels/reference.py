"""The pointwise kernels in plain torch: what runs on a CPU and what the Triton kernels are tested against."""

from __future__ import annotations

import torch
from torch.nn import functional

from twinserve.real_backend.kernels.base import QkvStore


class TorchKernels:
    """``PointwiseKernels`` in torch operations."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return _normalised(x.float(), weight, eps).to(x.dtype)

    def linear_add_norm(
        self, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor, norm: torch.Tensor, eps: float
    ) -> torch.Tensor:
        residual += functional.linear(x, weight)
        return _normalised(residual, norm, eps).to(x.dtype)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.float().chunk(2, dim=-1)
        return (functional.silu(gate) * up).to(gate_up.dtype)

    def norm_rope_store(
        self, qkv: torch.Tensor, positions: torch.Tensor, slot_mapping: torch.Tensor, store: QkvStore
    ) -> None:
        num_kv_heads, head_dim = store.k_cache.shape[-2:]
        heads = qkv.view(len(qkv), -1, head_dim)
        q, k, v = heads.split((heads.shape[1] - 2 * num_kv_heads, num_kv_heads, num_kv_heads), dim=1)
        cos_sin = store.cos_sin[positions].unsqueeze(1)
        q.copy_(_rotated(_maybe_normalised(q.float(), store.q_norm, store.eps), cos_sin))
        rotated_k = _rotated(_maybe_normalised(k.float(), store.k_norm, store.eps), cos_sin)
        kept = slot_mapping >= 0
        slots = slot_mapping[kept]
        store.k_cache.view(-1, num_kv_heads, head_dim)[slots] = rotated_k[kept].to(store.k_cache.dtype)
        store.v_cache.view(-1, num_kv_heads, head_dim)[slots] = v[kept].to(store.v_cache.dtype)


def _normalised(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight.float()


def _maybe_normalised(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    return x if weight is None else _normalised(x, weight, eps)


def _rotated(x: torch.Tensor, cos_sin: torch.Tensor) -> torch.Tensor:
    cos, sin = cos_sin.chunk(2, dim=-1)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
