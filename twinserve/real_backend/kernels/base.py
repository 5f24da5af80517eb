"""What a decoder layer asks of its pointwise kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QkvStore:
    """Where a layer's fused q, k, v go: all that ``norm_rope_store`` needs besides the projection itself.

    ``cos_sin`` is ``rope_table``'s [positions, D]; ``q_norm`` and ``k_norm`` [D] are None for a model that does not
    normalise them. ``k_cache`` and ``v_cache`` are [pages, page size, Hkv, D]; slot ``s`` is token ``s % page size``
    of page ``s // page size``.
    """

    cos_sin: torch.Tensor
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    eps: float
    k_cache: torch.Tensor
    v_cache: torch.Tensor


class PointwiseKernels(Protocol):
    """Arithmetic in float32 whatever the tensors' type; ``weight`` is [width]."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """``x / rms(x) * weight`` over the last dimension of x [T, H], in a new tensor."""

    def linear_add_norm(
        self, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor, norm: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """``residual += x @ weight.T`` in place, then ``rms_norm(residual)`` in x's type, in a new tensor.

        x is [T, in], weight [out, in], residual float32 [T, out] and norm [out].
        """

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """``silu(gate) * up`` [T, I] of gate_up [T, 2 I]."""

    def norm_rope_store(
        self, qkv: torch.Tensor, positions: torch.Tensor, slot_mapping: torch.Tensor, store: QkvStore
    ) -> None:
        """Normalises and rotates q in place in qkv [T, (Hq + 2 Hkv) D]; puts k, treated the same, and v in the cache.

        ``positions`` and ``slot_mapping`` are int64 [T]. A token whose slot is -1 (padding) is not stored.
        """
