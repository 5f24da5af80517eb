"""FlashAttention 2 (the flash-attn package, 2.8): decode rows and prefill rows as two calls.

Its split-KV and its packing of grouped query heads work only where every row has one query, so one call for a mixed
batch would run the decode rows several times slower.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from twinserve.real_backend.attention.base import AttentionMetadata, AttentionShape
from twinserve.real_backend.attention.row_groups import RowGroup, decode_rows, prefill_rows
from twinserve.sched_core.dispatch import GraphSupport


class Fa2Backend:
    """flash-attn over pages of a multiple of 256 tokens; fp16 and bf16."""

    name = "fa2"
    page_multiple = 256
    graph_support: GraphSupport = "decode"

    def __init__(self, shape: AttentionShape) -> None:
        kernels: Any = importlib.import_module("flash_attn")
        self._decode, self._prefill = kernels.flash_attn_with_kvcache, kernels.flash_attn_varlen_func
        self._scale = shape.head_dim**-0.5
        self._decodes: RowGroup | None = None
        self._prefills: RowGroup | None = None

    def begin_step(self, meta: AttentionMetadata) -> None:
        self._decodes = decode_rows(meta)
        self._prefills = prefill_rows(meta)

    def forward(
        self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, layer: int, out: torch.Tensor
    ) -> None:
        del layer
        if self._decodes is not None:
            self._forward_decodes(self._decodes, q, k_cache, v_cache, out)
        if self._prefills is not None:
            self._forward_prefills(self._prefills, q, k_cache, v_cache, out)

    def _forward_decodes(
        self, rows: RowGroup, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor
    ) -> None:
        count = len(rows.seqused_k)
        attended = self._decode(
            q[:count].unsqueeze(1),
            k_cache,
            v_cache,
            cache_seqlens=rows.seqused_k,
            block_table=rows.block_table,
            softmax_scale=self._scale,
            causal=True,
        )
        out[:count] = attended.squeeze(1)

    def _forward_prefills(
        self, rows: RowGroup, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor
    ) -> None:
        out[rows.first_token :] = self._prefill(
            q[rows.first_token :],
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
