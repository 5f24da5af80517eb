"""FlashAttention 2 (the flash-attn package, 2.8): decode rows and prefill rows as two calls."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from twinserve.real_backend.attention.base import AttentionShape
from twinserve.real_backend.attention.row_groups import RowGroup
from twinserve.real_backend.attention.two_calls import TwoCalls


class Fa2Backend(TwoCalls):
    """flash-attn."""

    name = "fa2"

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        kernels: Any = importlib.import_module("flash_attn")
        self._decode, self._prefill = kernels.flash_attn_with_kvcache, kernels.flash_attn_varlen_func
        self._scale = shape.head_dim**-0.5

    def _attend_decodes(
        self, rows: RowGroup, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor
    ) -> None:
        attended = self._decode(
            q.unsqueeze(1),
            k_cache,
            v_cache,
            cache_seqlens=rows.seqused_k,
            block_table=rows.block_table,
            softmax_scale=self._scale,
            causal=True,
        )
        out.copy_(attended.squeeze(1))

    def _attend_prefills(
        self, rows: RowGroup, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor
    ) -> None:
        attended = self._prefill(
            q,
            k_cache,
            v_cache,
            cu_seqlens_q=rows.cu_seqlens_q,
            cu_seqlens_k=rows.cu_seqlens_k,
            max_seqlen_q=rows.max_seqlen_q,
            max_seqlen_k=rows.max_seqlen_k,
            softmax_scale=self._scale,
            causal=True,
            block_table=rows.block_table,
        )
        out.copy_(attended)
