"""torch's own paged attention (torch >= 2.12): FlashAttention 2 without a package to build."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from twinserve.real_backend.attention.base import AttentionShape
from twinserve.real_backend.attention.row_groups import RowGroup
from twinserve.real_backend.attention.two_calls import TwoCalls


class TorchVarlenBackend(TwoCalls):
    """``torch.nn.attention.varlen``. Splitting along the keys is right only where every row has one query, so the
    prefill call turns it off.
    """

    name = "torch_varlen"

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        varlen: Any = importlib.import_module("torch.nn.attention.varlen")
        self._attend_out = varlen.varlen_attn_out
        self._scale = shape.head_dim**-0.5

    def _attend_decodes(
        self, rows: RowGroup, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor
    ) -> None:
        self._attend(rows, q, k_cache, v_cache, out)

    def _attend_prefills(
        self, rows: RowGroup, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor
    ) -> None:
        self._attend(rows, q, k_cache, v_cache, out)

    def _attend(
        self, rows: RowGroup, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor
    ) -> None:
        self._attend_out(
            out,
            q,
            k_cache,
            v_cache,
            rows.cu_seqlens_q,
            rows.cu_seqlens_k,
            rows.max_seqlen_q,
            rows.max_seqlen_k,
            scale=self._scale,
            window_size=(-1, 0),
            enable_gqa=True,
            seqused_k=rows.seqused_k,
            block_table=rows.block_table,
            num_splits=None if rows.max_seqlen_q == 1 else 1,
        )
