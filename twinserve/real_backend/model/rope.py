"""Rotary position embedding: the table of cosines and sines (rotate-half layout, as GPT-NeoX and Hugging Face)."""

from __future__ import annotations

import math

import torch

from twinserve.run_core.model_config import Llama3RopeScaling, ModelConfig


def rope_table(config: ModelConfig, num_positions: int, device: torch.device) -> torch.Tensor:
    """float32 [num_positions, head_dim]: head_dim / 2 cosines, then as many sines.

    Made on the CPU whatever ``device`` is, so that every device rotates by the same numbers.
    """
    positions = torch.arange(num_positions, dtype=torch.float32, device="cpu")
    angles = torch.outer(positions, _inverse_frequencies(config))
    return torch.cat((angles.cos(), angles.sin()), dim=-1).to(device)


def _inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device="cpu") / config.head_dim
    frequencies = 1.0 / config.rope_theta**exponents
    return frequencies if config.rope_scaling is None else _stretched(frequencies, config.rope_scaling)


def _stretched(frequencies: torch.Tensor, scaling: Llama3RopeScaling) -> torch.Tensor:
    """Long wavelengths grow by ``factor``, short ones stay, those between are interpolated (Llama 3.1)."""
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = kept.clamp(0.0, 1.0)
    return kept * frequencies + (1.0 - kept) * frequencies / scaling.factor
