"""FlashAttention 3 (package flash_attn_interface, Hopper only): any batch, any page size."""

from __future__ import annotations

import importlib

import torch

from real_backend.attention.base import AttentionMetadata, AttentionShape
from real_backend.attention.row_groups import RowGroup, prefill_rows
from real_backend.attention.tile_sizes import TileSizes
from real_backend.attention.triton_decode import TritonDecode
from sched_core.dispatch import GraphSupport


class Fa3Backend:
    """FlashAttention 3 for prefill rows and mixed graphs, our own kernel for decode rows; fp16 and bf16.

    On decode rows alone our kernel reads pages of 16 tokens at 4.1 TB/s where this one reaches 3.6 (H200, 215 rows);
    with a chunk beside them, one call each is 5 to 15 % faster than one for both. Inside a mixed graph, which cannot
    know its rows, one call for all of them costs the same.

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
        self._decode = TritonDecode(shape, TileSizes.of_device(shape.device))
        self._meta: AttentionMetadata | None = None
        self._prefills: RowGroup | None = None

    def begin_step(self, meta: AttentionMetadata) -> None:
        self._meta = meta
        self._prefills = prefill_rows(meta)

    def forward(
        self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, layer: int, out: torch.Tensor
    ) -> None:
        del layer
        meta, prefills = self._meta, self._prefills
        if meta is None:
            raise RuntimeError("forward before begin_step")
        if meta.num_decodes:
            self._decode.forward(meta, meta.num_decodes, q, k_cache, v_cache, out)
        if prefills is not None:
            self._attend(prefills, q[prefills.first_token :], k_cache, v_cache, out[prefills.first_token :])

    def _attend(
        self, rows: RowGroup, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor
    ) -> None:
        self._operator(
            q,
            k_cache,
            v_cache,
            out=out,
            cu_seqlens_q=rows.cu_seqlens_q,
            seqused_k=rows.seqused_k,
            max_seqlen_q=rows.max_seqlen_q,
            page_table=rows.block_table,
            softmax_scale=self._scale,
            is_causal=True,
        )
