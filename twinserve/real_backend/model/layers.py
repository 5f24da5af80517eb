"""The parameters of a decoder, fused for inference."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from twinserve.run_core.model_config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecoderLayer:
    """One layer's weights; a matrix is [out, in] as in ``torch.nn.Linear``.

    ``qkv`` stacks the q, k and v projections, ``gate_up`` the MLP's two inputs; ``q_norm`` and ``k_norm`` [head_dim]
    are None for a model that does not normalise them.
    """

    input_norm: torch.Tensor
    qkv: torch.Tensor
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: torch.Tensor
    post_attention_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecoderWeights:
    """All parameters. ``lm_head`` [vocab, hidden] is ``embedding`` itself when the two are tied."""

    embedding: torch.Tensor
    layers: tuple[DecoderLayer, ...]
    final_norm: torch.Tensor
    lm_head: torch.Tensor


def empty_weights(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> DecoderWeights:
    """Uninitialised parameters of the right shapes, to be filled by ``weights.py``."""

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, device=device, dtype=dtype)

    embedding = empty(config.vocab_size, config.hidden_size)
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(_empty_layer(config, device, dtype) for _ in range(config.num_hidden_layers)),
        final_norm=empty(config.hidden_size),
        lm_head=embedding if config.tie_word_embeddings else empty(config.vocab_size, config.hidden_size),
    )


def _empty_layer(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> DecoderLayer:
    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, device=device, dtype=dtype)

    hidden = config.hidden_size
    return DecoderLayer(
        input_norm=empty(hidden),
        qkv=empty(config.q_size + 2 * config.kv_size, hidden),
        q_norm=empty(config.head_dim) if config.qk_norm else None,
        k_norm=empty(config.head_dim) if config.qk_norm else None,
        o=empty(hidden, config.q_size),
        post_attention_norm=empty(hidden),
        gate_up=empty(2 * config.intermediate_size, hidden),
        down=empty(hidden, config.intermediate_size),
    )
