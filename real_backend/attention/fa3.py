"""FlashAttention 3 (package flash_attn_interface, Hopper only): one call for any batch, any page size."""

from __future__ import annotations

import importlib

import torch

from real_backend.attention.base import AttentionMetadata, AttentionShape
from sched_core.dispatch import GraphSupport


class Fa3Backend:
    """FlashAttention 3; fp16 and bf16.

    Calls the operator that the package registers, not the package's Python function: that one cannot write into
    ``out`` and its wrapper costs more host time than a small batch takes on the device.
    """

    name = "fa3"
    page_multiple = 1
    graph_support: GraphSupport = "mixed"

    def __init__(self, shape: AttentionShape) -> None:
        importlib.import_module("flash_attn_interface")
        self._operator = torch.ops.flash_attn_3.fwd.default
        self._scale = shape.head_dim**-0.5
        self._meta: AttentionMetadata | None = None

    def begin_step(self, meta: AttentionMetadata) -> None:
        self._meta = meta

    def forward(
        self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, layer: int, out: torch.Tensor
    ) -> None:
        del layer
        meta = self._meta
        if meta is None:
            raise RuntimeError("forward before begin_step")
        self._operator(
            q,
            k_cache,
            v_cache,
            out=out,
            cu_seqlens_q=meta.cu_seqlens_q,
            seqused_k=meta.seqused_k,
            max_seqlen_q=meta.max_seqlen_q,
            page_table=meta.block_table,
            softmax_scale=self._scale,
            is_causal=True,
        )
