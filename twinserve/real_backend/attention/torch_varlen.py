"""torch's own paged attention (torch >= 2.12): FlashAttention 2 without a package to build."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from twinserve.real_backend.attention.base import AttentionMetadata, AttentionShape
from twinserve.real_backend.attention.row_groups import RowGroup, decode_rows, prefill_rows
from twinserve.sched_core.dispatch import GraphSupport


class TorchVarlenBackend:
    """``torch.nn.attention.varlen`` over pages of a multiple of 256 tokens; fp16 and bf16.

    Decode rows and prefill rows are two calls, as in ``fa2``. Splitting along the keys is right only where every row
    has one query, so the prefill call turns it off.
    """

    name = "torch_varlen"
    page_multiple = 256
    graph_support: GraphSupport = "decode"

    def __init__(self, shape: AttentionShape) -> None:
        varlen: Any = importlib.import_module("torch.nn.attention.varlen")
        self._attend_out = varlen.varlen_attn_out
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
            end = len(self._decodes.seqused_k)
            self._attend(self._decodes, q[:end], k_cache, v_cache, out[:end])
        if self._prefills is not None:
            start = self._prefills.first_token
            self._attend(self._prefills, q[start:], k_cache, v_cache, out[start:])

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
