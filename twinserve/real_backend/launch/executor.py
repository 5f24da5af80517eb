"""Launches one step on the device: metadata views, the forward pass, sampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from twinserve.real_backend.attention.base import AttentionBackend, AttentionMetadata
from twinserve.real_backend.inputs.batch import FlatBatch
from twinserve.real_backend.inputs.buffers import StepBuffers
from twinserve.real_backend.inputs.expansion import expand_rows
from twinserve.real_backend.model.model import KvCache, Qwen3Model
from twinserve.sched_core.dispatch import Dispatch, GraphMode


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """The host-side numbers of a step; ``max_seqlen_*`` may be upper bounds."""

    num_tokens: int
    num_rows: int
    num_decodes: int
    max_seqlen_q: int
    max_seqlen_k: int
    mixed_graph: bool = False
    captured: bool = False

    @classmethod
    def of_batch(cls, batch: FlatBatch) -> StepShape:
        return cls(
            num_tokens=batch.num_tokens,
            num_rows=batch.num_rows,
            num_decodes=batch.num_decodes,
            max_seqlen_q=batch.max_seqlen_q,
            max_seqlen_k=batch.max_seqlen_k,
        )

    @classmethod
    def of_graph(cls, choice: Dispatch, *, max_rows: int, max_model_len: int) -> StepShape:
        """What a graph is captured for: its own size and the longest context, so that any replay is within bounds."""
        size, mixed = choice.num_padded_tokens, choice.mode is GraphMode.MIXED
        return cls(
            num_tokens=size,
            num_rows=max_rows if mixed else size,
            num_decodes=0 if mixed else size,
            max_seqlen_q=size if mixed else 1,
            max_seqlen_k=max_model_len,
            mixed_graph=mixed,
            captured=True,
        )


class Executor:
    """The model with its KV cache, fed from the static device fields of ``buffers``."""

    def __init__(
        self, model: Qwen3Model, attention: AttentionBackend, buffers: StepBuffers, kv_caches: Sequence[KvCache]
    ) -> None:
        self._model = model
        self._attention = attention
        self._buffers = buffers
        self._kv_caches = kv_caches
        self._block_size = kv_caches[0][0].shape[1]

    def expand(self, num_rows: int, num_tokens: int) -> None:
        """Works out the inputs of a step padded to this size from the uploaded rows."""
        expand_rows(self._buffers.device, num_rows, num_tokens, self._block_size)

    def forward(self, shape: StepShape, num_samples: int | None = None) -> torch.Tensor:
        """Runs a step whose inputs have been expanded.

        Returns the hidden states [S, H] of the sampling tokens, or of all padded tokens [T, H] without ``num_samples``.
        """
        fields = self._buffers.device
        meta = self._metadata(shape)
        self._attention.begin_step(meta)
        rows = None if num_samples is None else fields["logits_tokens"][:num_samples]
        input_ids, positions = fields["input_ids"][: shape.num_tokens], fields["positions"][: shape.num_tokens]
        return self._model.forward(input_ids, positions, self._kv_caches, meta, self._attention, rows)

    def clear_kv_cache(self) -> None:
        """Waits for the device and fills the KV cache with zeros."""
        for cache in self._kv_caches:
            for part in cache:
                part.zero_()
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)

    def select(self, hidden: torch.Tensor, num_samples: int) -> torch.Tensor:
        """The rows of a graph's hidden states that sample."""
        return hidden[self._buffers.device["logits_tokens"][:num_samples]]

    def logits(self, hidden_rows: torch.Tensor) -> torch.Tensor:
        """[S, vocab] in the model's type."""
        return self._model.logits(hidden_rows)

    def _metadata(self, shape: StepShape) -> AttentionMetadata:
        fields, rows = self._buffers.device, shape.num_rows
        return AttentionMetadata(
            cu_seqlens_q=fields["cu_seqlens_q"][: rows + 1],
            cu_seqlens_k=fields["cu_seqlens_k"][: rows + 1],
            seqused_k=fields["seqused_k"][:rows],
            block_table=fields["block_table"][:rows],
            slot_mapping=fields["slot_mapping"][: shape.num_tokens],
            num_decodes=shape.num_decodes,
            max_seqlen_q=shape.max_seqlen_q,
            max_seqlen_k=shape.max_seqlen_k,
            mixed_graph=shape.mixed_graph,
            captured=shape.captured,
        )


def allocate_kv_caches(
    model: Qwen3Model, num_pages: int, block_size: int, *, noise_seed: int | None = None
) -> list[KvCache]:
    """A zeroed pair [pages, block size, kv heads, head dim] per layer, or normal noise drawn from ``noise_seed``.

    Finite values matter: kernels may read the unused tail of a page and multiply it by 0, which NaN would survive.
    """
    config = model.config
    shape = (config.num_hidden_layers, 2, num_pages, block_size, config.num_key_value_heads, config.head_dim)
    pool = torch.zeros(shape, dtype=model.dtype, device=model.device)
    if noise_seed is not None:
        generator = torch.Generator(model.device).manual_seed(noise_seed)
        for layer in pool:
            layer.normal_(generator=generator)
    return [(layer[0], layer[1]) for layer in pool]
