"""A step cut into decode rows and prefill rows, for kernels that must treat the two apart."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from twinserve.real_backend.attention.base import AttentionMetadata


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowGroup:
    """Neighbouring rows of a step, their tokens and keys counted from 0; the tokens start at ``first_token``."""

    first_token: int
    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    seqused_k: torch.Tensor
    block_table: torch.Tensor
    max_seqlen_q: int
    max_seqlen_k: int


def decode_rows(meta: AttentionMetadata) -> RowGroup | None:
    """The rows of one new token each, None when there are none."""
    end = meta.num_decodes
    if end == 0:
        return None
    return RowGroup(
        first_token=0,
        cu_seqlens_q=meta.cu_seqlens_q[: end + 1],
        cu_seqlens_k=meta.cu_seqlens_k[: end + 1],
        seqused_k=meta.seqused_k[:end],
        block_table=meta.block_table[:end],
        max_seqlen_q=1,
        max_seqlen_k=meta.max_seqlen_k,
    )


def prefill_rows(meta: AttentionMetadata) -> RowGroup | None:
    """The rows after the decode rows, None when every row decodes."""
    first = meta.num_decodes
    if first == 0:
        return all_rows(meta)
    if first == meta.num_rows:
        return None
    cu_seqlens_q, cu_seqlens_k = meta.cu_seqlens_q[first:], meta.cu_seqlens_k[first:]
    return RowGroup(
        first_token=meta.num_decode_tokens,
        cu_seqlens_q=cu_seqlens_q - first,
        cu_seqlens_k=cu_seqlens_k - cu_seqlens_k[:1],
        seqused_k=meta.seqused_k[first:],
        block_table=meta.block_table[first:],
        max_seqlen_q=meta.max_seqlen_q,
        max_seqlen_k=meta.max_seqlen_k,
    )


def all_rows(meta: AttentionMetadata) -> RowGroup:
    """The whole step as one group."""
    return RowGroup(
        first_token=0,
        cu_seqlens_q=meta.cu_seqlens_q,
        cu_seqlens_k=meta.cu_seqlens_k,
        seqused_k=meta.seqused_k,
        block_table=meta.block_table,
        max_seqlen_q=meta.max_seqlen_q,
        max_seqlen_k=meta.max_seqlen_k,
    )
