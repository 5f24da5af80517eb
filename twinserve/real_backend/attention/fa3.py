"""FlashAttention 3 (package flash_attn_interface, Hopper only): any batch, any page size."""

from __future__ import annotations

import importlib

import torch

from twinserve.real_backend.attention.base import AttentionMetadata, AttentionShape
from twinserve.real_backend.attention.row_groups import RowGroup, all_rows, prefill_rows
from twinserve.real_backend.attention.tile_sizes import TileSizes
from twinserve.real_backend.attention.triton_decode import TritonDecode

# Eager steps shorter than this are bound by the host's launches, so that one call for all rows is fastest.
_TWO_CALLS_FROM_TOKENS = 1024


class Fa3Backend:
    """FlashAttention 3 for prefill rows, our own kernel for decode rows.

    On decode rows our kernel reads pages of 16 tokens at 4.1 TB/s where this one reaches 3.6 (H200, 215 rows); with
    chunks beside them, two calls are 5 to 15 % faster than one. A mixed graph, which cannot know its rows, has one.

    Calls the operator that the package registers, not the package's Python function: that one cannot write into
    ``out`` and its wrapper costs more host time than a small batch takes on the device.
    """

    name = "fa3"

    def __init__(self, shape: AttentionShape) -> None:
        importlib.import_module("flash_attn_interface")
        self._operator = torch.ops.flash_attn_3.fwd.default
        self._scale = shape.head_dim**-0.5
        self._decode = TritonDecode(shape, TileSizes.of_device(shape.device))
        self._meta: AttentionMetadata | None = None
        self._num_decode_rows = 0
        self._rows: RowGroup | None = None

    def begin_step(self, meta: AttentionMetadata) -> None:
        self._meta = meta
        is_long = meta.captured or len(meta.slot_mapping) >= _TWO_CALLS_FROM_TOKENS
        self._num_decode_rows = meta.num_decodes if is_long else 0
        self._rows = prefill_rows(meta) if is_long else all_rows(meta)

    def forward(self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor) -> None:
        meta, rows = self._meta, self._rows
        if meta is None:
            raise RuntimeError("forward before begin_step")
        if self._num_decode_rows:
            self._decode.forward(meta, self._num_decode_rows, q, k_cache, v_cache, out)
        if rows is not None:
            self._attend(rows, q[rows.first_token :], k_cache, v_cache, out[rows.first_token :])

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
            # Parts of rows are put together by a kernel whose grid is rows x max_seqlen_q: 0.3 ms in a mixed graph.
            num_splits=0 if rows.max_seqlen_q == 1 else 1,
        )
