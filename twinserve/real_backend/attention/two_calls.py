"""Backends that attend the decode rows and the prefill rows of a step in a call each."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from twinserve.real_backend.attention.base import AttentionMetadata
from twinserve.real_backend.attention.row_groups import RowGroup, decode_rows, prefill_rows


class TwoCalls(ABC):
    """FlashAttention 2's split-KV and its packing of grouped query heads work only where every row has one query: one
    call for a mixed batch would run the decode rows several times slower.
    """

    def __init__(self) -> None:
        self._decodes: RowGroup | None = None
        self._prefills: RowGroup | None = None

    def begin_step(self, meta: AttentionMetadata) -> None:
        self._decodes = decode_rows(meta)
        self._prefills = prefill_rows(meta)

    def forward(self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor) -> None:
        if self._decodes is not None:
            end = len(self._decodes.seqused_k)
            self._attend_decodes(self._decodes, q[:end], k_cache, v_cache, out[:end])
        if self._prefills is not None:
            start = self._prefills.first_token
            self._attend_prefills(self._prefills, q[start:], k_cache, v_cache, out[start:])

    @abstractmethod
    def _attend_decodes(
        self, rows: RowGroup, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Of rows with one query each; ``q`` and ``out`` are those of the rows."""

    @abstractmethod
    def _attend_prefills(
        self, rows: RowGroup, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Of rows with any number of queries."""
