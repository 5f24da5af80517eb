"""Loading checkpoints: what is put where, and what is refused with which words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.model.checkpoint_config import read_checkpoint_config
from twinserve.real_backend.model.layers import DecoderWeights, empty_weights
from twinserve.real_backend.model.weights import checkpoint_views, fill_dummy_weights, load_weights
from twinserve.run_core.model_config import ModelConfig

CPU = torch.device("cpu")
TINY = ModelConfig(
    name="tiny",
    num_hidden_layers=2,
    hidden_size=8,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
    intermediate_size=12,
    vocab_size=20,
    qk_norm=True,
    rope_theta=1_000_000.0,
)
RAW_CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "intermediate_size": 12,
    "vocab_size": 20,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "max_position_embeddings": 64,
}


def random_tensors(config: ModelConfig = TINY) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    views = checkpoint_views(empty_weights(config, CPU, torch.float32), config)
    return {name: torch.randn(view.shape, generator=generator) for name, view in views.items()}


def saved(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    save_file(tensors, folder / "model.safetensors")
    return folder


def load(folder: Path, config: ModelConfig = TINY, dtype: torch.dtype = torch.float32) -> DecoderWeights:
    weights = empty_weights(config, CPU, dtype)
    load_weights(weights, config, folder)
    return weights


def test_projections_are_stacked_in_order(tmp_path: Path) -> None:
    tensors = random_tensors()
    layer = load(saved(tmp_path, tensors)).layers[1]
    stacked = [tensors[f"model.layers.1.self_attn.{name}_proj.weight"] for name in "qkv"]
    assert torch.equal(layer.qkv, torch.cat(stacked))
    stacked = [tensors[f"model.layers.1.mlp.{name}_proj.weight"] for name in ("gate", "up")]
    assert torch.equal(layer.gate_up, torch.cat(stacked))


def test_a_tied_head_is_the_embedding_and_may_be_stored_twice(tmp_path: Path) -> None:
    tied = replace(TINY, tie_word_embeddings=True)
    tensors = random_tensors(tied)
    assert "lm_head.weight" not in tensors
    weights = load(saved(tmp_path, tensors | {"lm_head.weight": torch.zeros(20, 8)}), tied)
    assert weights.lm_head is weights.embedding
    assert torch.equal(weights.embedding, tensors["model.embed_tokens.weight"])


def test_tensors_are_cast_to_the_models_type(tmp_path: Path) -> None:
    tensors = random_tensors()
    weights = load(saved(tmp_path, tensors), dtype=torch.bfloat16)
    assert torch.equal(weights.final_norm, tensors["model.norm.weight"].bfloat16())


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    tensors = random_tensors()
    del tensors["model.layers.0.mlp.up_proj.weight"]
    with pytest.raises(EngineError, match=r"1 tensors are missing .*model\.layers\.0\.mlp\.up_proj\.weight"):
        load(saved(tmp_path, tensors))


def test_a_misshapen_tensor_is_named_with_both_shapes(tmp_path: Path) -> None:
    tensors = random_tensors()
    tensors["model.norm.weight"] = torch.zeros(9)
    with pytest.raises(EngineError, match=r"'model\.norm\.weight' has shape \[9\], the config asks for \[8\]"):
        load(saved(tmp_path, tensors))


def test_an_unexpected_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"unexpected tensor 'model\.layers\.2\.mlp\.up_proj\.weight'"):
        load(saved(tmp_path, {"model.layers.2.mlp.up_proj.weight": torch.zeros(1)}))


def test_a_quantised_tensor_is_refused(tmp_path: Path) -> None:
    tensors = random_tensors()
    tensors["model.norm.weight"] = torch.zeros(8, dtype=torch.int8)
    with pytest.raises(EngineError, match=r"'model\.norm\.weight' is torch\.int8"):
        load(saved(tmp_path, tensors))


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", b"\x10\x00\x00\x00\x00\x00\x00\x00{}"])
def test_a_corrupt_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(EngineError, match=r"model\.safetensors is not a readable safetensors file"):
        load(tmp_path)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    file = saved(tmp_path, random_tensors()) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(EngineError, match="not a readable safetensors file"):
        load(tmp_path)


def test_a_wrong_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="nowhere does not exist"):
        load(tmp_path / "nowhere")
    with pytest.raises(EngineError, match=r"neither model\.safetensors nor"):
        load(tmp_path)


def test_a_missing_shard_and_a_broken_index_are_named(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}))
    with pytest.raises(EngineError, match=r"model-00001-of-00002\.safetensors is missing"):
        load(tmp_path)
    index.write_text("{}")
    with pytest.raises(EngineError, match="not a valid index"):
        load(tmp_path)


def test_dummy_weights_depend_on_the_seed_only() -> None:
    first, again, other = (empty_weights(TINY, CPU, torch.float32) for _ in range(3))
    fill_dummy_weights(first, TINY, seed=1)
    fill_dummy_weights(again, TINY, seed=1)
    fill_dummy_weights(other, TINY, seed=2)
    assert torch.equal(first.layers[1].qkv, again.layers[1].qkv)
    assert not torch.equal(first.layers[1].qkv, other.layers[1].qkv)
    assert not torch.equal(first.layers[0].qkv, first.layers[1].qkv)


def test_dummy_weights_leave_nothing_uninitialised() -> None:
    weights = empty_weights(TINY, CPU, torch.float32)
    for view in checkpoint_views(weights, TINY).values():
        view.fill_(float("nan"))
    fill_dummy_weights(weights, TINY)
    parts = [weights.embedding, weights.final_norm, weights.lm_head]
    for layer in weights.layers:
        parts += [getattr(layer, name) for name in layer.__slots__]
    assert all(bool(part.isfinite().all()) for part in parts)


def config_folder(folder: Path, **changes: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(RAW_CONFIG | changes))
    return folder


def test_config_json_gives_the_shapes(tmp_path: Path) -> None:
    config = read_checkpoint_config(config_folder(tmp_path, eos_token_id=7))
    expected = replace(TINY, name=tmp_path.name, max_position_embeddings=64, dtype="float32", eos_token_ids=(7,))
    assert config == expected


def test_generation_config_overrules_the_end_of_sequence_id(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert read_checkpoint_config(config_folder(tmp_path, eos_token_id=7)).eos_token_ids == (5, 6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["MixtralForCausalLM"]}, "architecture MixtralForCausalLM is not supported"),
        ({"architectures": None}, "architecture none named is not supported"),
        ({"attention_bias": True}, "attention_bias = True is not supported"),
        ({"use_sliding_window": True}, "use_sliding_window = True is not supported"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope type 'yarn' is not supported"),
    ],
)
def test_what_the_layers_do_not_compute_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        read_checkpoint_config(config_folder(tmp_path, **changes))


def test_a_config_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"config\.json is missing"):
        read_checkpoint_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(EngineError, match="not valid JSON"):
        read_checkpoint_config(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "num_attention_heads": 4}')
    with pytest.raises(EngineError, match="has no 'num_hidden_layers'"):
        read_checkpoint_config(tmp_path)
