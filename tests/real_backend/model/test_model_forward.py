"""The decoder against transformers on random tiny checkpoints, loaded from their folders."""

from __future__ import annotations

import warnings
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.real_backend.paged_batches import metadata
from twinserve.real_backend.attention.base import AttentionShape
from twinserve.real_backend.attention.registry import make_attention_backend
from twinserve.real_backend.model.checkpoint_config import read_checkpoint_config
from twinserve.real_backend.model.model import Qwen3Model
from twinserve.real_backend.model.weights import load_weights

BLOCK_SIZE = 8
CPU = torch.device("cpu")
TINY: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "eos_token_id": 3,
    "pad_token_id": None,
    "bos_token_id": None,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def checkpoint(folder: Path, *, kind: str) -> Any:
    """Saves a random model of a kind in ``folder`` and returns it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        torch.manual_seed(1)
        if kind == "llama":
            config = transformers.LlamaConfig(**TINY, rope_parameters=LLAMA3_ROPE, tie_word_embeddings=False)
            model = transformers.LlamaForCausalLM(config)
        else:
            config = transformers.Qwen3Config(**TINY, head_dim=16, tie_word_embeddings=kind == "tied")
            model = transformers.Qwen3ForCausalLM(config)
        for parameter in model.parameters():  # norm weights of exactly 1 and tiny logits would hide mistakes
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
        model.save_pretrained(folder, max_shard_size="20KB" if kind == "sharded" else "1GB")
    return model.eval()


def loaded(folder: Path, dtype: torch.dtype = torch.float32) -> Qwen3Model:
    config = read_checkpoint_config(folder)
    model = Qwen3Model(config, CPU, dtype)
    load_weights(model.weights, config, folder)
    return model


class Session:
    """Runs a model step by step over a small paged cache, several sequences at once."""

    def __init__(self, model: Qwen3Model) -> None:
        config = model.config
        self.model = model
        pool = torch.zeros(
            config.num_hidden_layers, 2, 64, BLOCK_SIZE, config.num_key_value_heads, config.head_dim, dtype=model.dtype
        )
        self.kv_caches = [(layer[0], layer[1]) for layer in pool]
        shape = AttentionShape(
            device=CPU,
            dtype=model.dtype,
            num_heads=config.num_attention_heads,
            num_kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            block_size=BLOCK_SIZE,
        )
        self.attention = make_attention_backend("auto", shape)

    def step(self, tokens: list[list[int]], computed: list[int], rows: torch.Tensor | None = None) -> torch.Tensor:
        """Hidden states of the tokens from ``computed`` on of every sequence."""
        lengths = [(len(ids) - done, len(ids)) for ids, done in zip(tokens, computed, strict=True)]
        # The same seed and full-length tables: a sequence keeps its pages from step to step.
        meta = metadata(lengths, BLOCK_SIZE, torch.Generator().manual_seed(0))
        new_ids = [ids[done:] for ids, done in zip(tokens, computed, strict=True)]
        positions = [torch.arange(done, len(ids)) for ids, done in zip(tokens, computed, strict=True)]
        self.attention.begin_step(meta)
        return self.model.forward(
            torch.tensor(list(chain.from_iterable(new_ids))),
            torch.cat(positions),
            self.kv_caches,
            meta,
            self.attention,
            rows,
        )


PROMPTS = [[5, 9, 13, 2, 44, 91, 7, 7, 30, 1, 66], [17, 3, 80]]


@pytest.fixture(scope="module", params=["untied", "tied", "sharded", "llama"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Qwen3Model, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    reference = checkpoint(folder, kind=request.param)
    return reference, loaded(folder), folder


def reference_logits(reference: Any, prompt: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = reference(torch.tensor([prompt])).logits[0]
    return logits


def test_logits_of_several_sequences_equal_transformers(pair: tuple[Any, Qwen3Model, Path]) -> None:
    reference, model, _ = pair
    logits = model.logits(Session(model).step(PROMPTS, [0, 0]))
    expected = torch.cat([reference_logits(reference, prompt) for prompt in PROMPTS])
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_a_long_prompt_reaches_every_stretched_frequency(pair: tuple[Any, Qwen3Model, Path]) -> None:
    reference, model, _ = pair
    prompt = [(7 * i * i + 3) % 97 for i in range(180)]
    logits = model.logits(Session(model).step([prompt], [0]))
    torch.testing.assert_close(logits, reference_logits(reference, prompt), atol=1e-4, rtol=0)


def test_greedy_tokens_equal_transformers_generate(pair: tuple[Any, Qwen3Model, Path]) -> None:
    reference, model, _ = pair
    prompt, num_new = PROMPTS[0], 20
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = reference.generate(
            torch.tensor([prompt]), do_sample=False, max_new_tokens=num_new, eos_token_id=None, pad_token_id=0
        )[0].tolist()
    session, tokens = Session(model), list(prompt)
    for _ in range(num_new):
        tokens.append(int(model.logits(session.step([tokens], [0])[-1:]).argmax()))
    assert tokens == expected


def test_sharded_checkpoint_really_is_sharded(
    pair: tuple[Any, Qwen3Model, Path], request: pytest.FixtureRequest
) -> None:
    _, _, folder = pair
    is_sharded = "[sharded]" in request.node.name
    assert (len(list(folder.glob("*.safetensors"))) > 1) == is_sharded


def test_keeping_some_rows_changes_no_value_of_theirs(pair: tuple[Any, Qwen3Model, Path]) -> None:
    _, model, _ = pair
    everything = Session(model).step(PROMPTS, [0, 0])
    rows = torch.tensor([13, 10])
    kept = Session(model).step(PROMPTS, [0, 0], rows)
    torch.testing.assert_close(kept, everything[rows], atol=1e-6, rtol=1e-6)


def test_no_rows_still_stores_keys_and_values(pair: tuple[Any, Qwen3Model, Path]) -> None:
    _, model, _ = pair
    session = Session(model)
    hidden = session.step([PROMPTS[0]], [0], torch.zeros(0, dtype=torch.int64))
    assert hidden.shape == (0, model.config.hidden_size)
    assert all(bool((keys != 0).any()) for keys, _ in session.kv_caches)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_close_to_float32(pair: tuple[Any, Qwen3Model, Path], dtype: torch.dtype) -> None:
    reference, _, folder = pair
    model = loaded(folder, dtype)
    logits = model.logits(Session(model).step([PROMPTS[0]], [0])).float()
    expected = reference_logits(reference, PROMPTS[0])
    assert (logits - expected).abs().max() < 0.05 * expected.abs().max()


def test_config_is_read_from_the_folder(pair: tuple[Any, Qwen3Model, Path], request: pytest.FixtureRequest) -> None:
    reference, model, _ = pair
    config = model.config
    assert config.num_parameters == reference.num_parameters()
    assert config.eos_token_ids == (3,)
    assert config.tie_word_embeddings == ("[tied]" in request.node.name)
    assert config.qk_norm == ("llama" not in request.node.name)
