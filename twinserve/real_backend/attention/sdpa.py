"""Attention row by row: pages gathered, then torch's own attention; slow, exact, and everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from twinserve.real_backend.attention.base import AttentionMetadata, AttentionShape


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Row:
    """New tokens [start, end) of the flat batch, the number of keys, and the pages that hold them."""

    start: int
    end: int
    num_keys: int
    pages: torch.Tensor


class SdpaBackend:
    """The reference backend, for CPUs and any page size."""

    name = "sdpa"

    def __init__(self, shape: AttentionShape) -> None:
        self._block_size = shape.block_size
        self._rows: list[_Row] = []

    def begin_step(self, meta: AttentionMetadata) -> None:
        ends, lengths = meta.cu_seqlens_q.tolist(), meta.seqused_k.tolist()
        self._rows = [
            _Row(start=start, end=end, num_keys=length, pages=pages[: -(-length // self._block_size)])
            for start, end, length, pages in zip(ends, ends[1:], lengths, meta.block_table, strict=False)
            if end > start
        ]

    def forward(self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor) -> None:
        for row in self._rows:
            k = k_cache[row.pages].flatten(0, 1)[: row.num_keys]
            v = v_cache[row.pages].flatten(0, 1)[: row.num_keys]
            out[row.start : row.end] = _attend(q[row.start : row.end], k, v)


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q [n, Hq, D] are the last n of the positions of k and v [m, Hkv, D]."""
    num_new, num_keys = len(q), len(k)
    mask = None
    if num_new > 1:
        everything = torch.ones(num_new, num_keys, dtype=torch.bool, device=q.device)
        mask = everything.tril(diagonal=num_keys - num_new)
    queries, keys, values = (heads.transpose(0, 1).unsqueeze(0) for heads in (q, k, v))
    attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)
    return attended.squeeze(0).transpose(0, 1)
