"""Tiny random Qwen3 checkpoints and transformers' own greedy continuation of a prompt."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

VOCAB_SIZE = 128


def save_checkpoint(folder: Path, *, tied: bool = False, seed: int = 0, head_dim: int = 16) -> Path:
    """Two layers, hidden size 64. The weights are large enough for the greedy tokens to vary."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
        max_position_embeddings=1024,
        tie_word_embeddings=tied,
        initializer_range=0.3,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=None,
    )
    Qwen3ForCausalLM(config).to(torch.float32).save_pretrained(folder)
    return folder


class Reference:
    """transformers on the same folder; remembers what it has generated."""

    def __init__(self, folder: Path) -> None:
        self._model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._known: dict[tuple[int, ...], list[int]] = {}

    def greedy(self, prompt: tuple[int, ...], num_tokens: int) -> list[int]:
        """The next ``num_tokens`` tokens."""
        known = self._known.get(prompt, [])
        if len(known) < num_tokens:
            with torch.inference_mode():
                ids = self._model.generate(
                    torch.tensor([prompt]),
                    attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                    max_new_tokens=num_tokens,
                    min_new_tokens=num_tokens,
                    do_sample=False,
                )
            known = self._known[prompt] = ids[0, len(prompt) :].tolist()
        return known[:num_tokens]
