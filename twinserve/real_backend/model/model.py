"""The decoder: Qwen3, and Llama-style models without q/k norm, on one flat batch of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch.nn import functional

from twinserve.real_backend.attention.base import AttentionBackend, AttentionMetadata
from twinserve.real_backend.kernels.base import QkvStore
from twinserve.real_backend.kernels.registry import pointwise_kernels
from twinserve.real_backend.model.layers import DecoderLayer, DecoderWeights, empty_weights
from twinserve.real_backend.model.rope import rope_table
from twinserve.run_core.model_config import ModelConfig

# K and V of one layer, each [pages, page size, Hkv, D].
KvCache: TypeAlias = tuple[torch.Tensor, torch.Tensor]


class Qwen3Model:
    """Weights (uninitialised until ``weights.py`` fills them) and the forward pass.

    Nine launches a layer on a GPU: four matrix products, attention, and four fused pointwise kernels. The residual
    stream is kept in float32: it takes two additions a layer, and rounding each to bfloat16 would be the largest
    error of the whole pass. Arithmetic inside a kernel is float32, everything else is in ``dtype``.
    ``num_positions`` (default: all that the model knows) bounds the positions that can be asked for.
    """

    def __init__(
        self, config: ModelConfig, device: torch.device, dtype: torch.dtype, num_positions: int | None = None
    ) -> None:
        self.config = config
        self.device = device
        self.dtype = dtype
        self.weights: DecoderWeights = empty_weights(config, device, dtype)
        self._cos_sin = rope_table(config, num_positions or config.max_position_embeddings, device)
        self._kernels = pointwise_kernels(device)

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_caches: Sequence[KvCache],
        meta: AttentionMetadata,
        attention: AttentionBackend,
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Hidden states [T, H] after the final norm, for input_ids and positions [T] (int64).

        Stores the tokens' keys and values in ``kv_caches``, one pair per layer. ``attention.begin_step(meta)`` must
        have been called. With ``rows`` [S] (int64) only these tokens go beyond the last layer's attention, and the
        result is [S, H]: the others are needed for their keys and values alone.
        """
        weights, kernels, eps = self.weights, self._kernels, self.config.rms_norm_eps
        embedded = functional.embedding(input_ids, weights.embedding)
        hidden = kernels.rms_norm(embedded, weights.layers[0].input_norm, eps)
        residual = embedded.float()
        next_norms = [layer.input_norm for layer in weights.layers[1:]] + [weights.final_norm]
        for index, (layer, next_norm) in enumerate(zip(weights.layers, next_norms, strict=True)):
            qkv = functional.linear(hidden, layer.qkv)
            store = self._store(layer, kv_caches[index])
            kernels.norm_rope_store(qkv, positions, meta.slot_mapping, store)
            attended = self._attend(qkv, kv_caches[index], attention)
            if rows is not None and index == len(weights.layers) - 1:
                attended, residual = attended[rows], residual[rows]
            hidden = kernels.linear_add_norm(attended, layer.o, residual, layer.post_attention_norm, eps)
            gated = kernels.silu_mul(functional.linear(hidden, layer.gate_up))
            hidden = kernels.linear_add_norm(gated, layer.down, residual, next_norm, eps)
        return hidden

    def logits(self, hidden_rows: torch.Tensor) -> torch.Tensor:
        """[S, vocab] in the model's type, for S rows of ``forward``'s result."""
        return functional.linear(hidden_rows, self.weights.lm_head)

    def _store(self, layer: DecoderLayer, kv_cache: KvCache) -> QkvStore:
        return QkvStore(
            cos_sin=self._cos_sin,
            q_norm=layer.q_norm,
            k_norm=layer.k_norm,
            eps=self.config.rms_norm_eps,
            k_cache=kv_cache[0],
            v_cache=kv_cache[1],
        )

    def _attend(self, qkv: torch.Tensor, kv_cache: KvCache, attention: AttentionBackend) -> torch.Tensor:
        """Attention's result [T, q size]; the q part of qkv is read in place."""
        config = self.config
        shape = (len(qkv), config.num_attention_heads, config.head_dim)
        out = torch.empty((len(qkv), config.q_size), device=self.device, dtype=self.dtype)
        q = qkv[:, : config.q_size].view(shape)
        attention.forward(q, kv_cache[0], kv_cache[1], out.view(shape))
        return out
