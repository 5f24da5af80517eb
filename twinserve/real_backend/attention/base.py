"""The interface that every attention kernel is driven through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionMetadata:
    """Where the tokens of one step lie: N rows, T new tokens, device tensors of int32 unless said otherwise.

    Row ``i`` has the new tokens ``cu_seqlens_q[i] .. cu_seqlens_q[i + 1]`` of the flat batch; they are the last of
    its ``seqused_k[i]`` keys, which lie in the pages ``block_table[i]``, and see only keys up to themselves.
    ``slot_mapping`` (int64 [T]) says where the new keys and values are stored, -1 for a padding token.

    The first ``num_decodes`` rows have one new token each; the rows after them any number. ``max_seqlen_q`` and
    ``max_seqlen_k`` are upper bounds. ``mixed_graph`` marks the capture of a CUDA graph that will be replayed on rows
    of any lengths, also 0: ``num_decodes`` is then 0 and ``max_seqlen_q`` the graph's token count. ``captured`` marks
    the capture of any CUDA graph: launches then cost the host nothing.
    """

    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    seqused_k: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    num_decodes: int
    max_seqlen_q: int
    max_seqlen_k: int
    mixed_graph: bool = False
    captured: bool = False

    @property
    def num_rows(self) -> int:
        return len(self.seqused_k)

    @property
    def num_decode_tokens(self) -> int:
        """Tokens of the decode rows, which come first in the flat batch."""
        return self.num_decodes


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """What a backend must be able to serve; ``block_size`` is the page size in tokens."""

    device: torch.device
    dtype: torch.dtype
    num_heads: int
    num_kv_heads: int
    head_dim: int
    block_size: int


class AttentionBackend(Protocol):
    """``begin_step`` once a step, then ``forward`` once a layer; ``facts.py`` says by ``name`` what it can serve."""

    name: str

    def begin_step(self, meta: AttentionMetadata) -> None:
        """Takes the step's rows and prepares what all layers share."""

    def forward(self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor) -> None:
        """Causal attention of q [T, Hq, D] over the cache [pages, page size, Hkv, D], scaled by 1 / sqrt(D), into out.

        Only the last dimension of q must be contiguous. Tokens that belong to no row leave ``out`` as it is.
        """
