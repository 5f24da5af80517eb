"""What a checkpoint says of its model: config.json of a Hugging Face folder as a ``ModelConfig``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinserve.real_backend.errors import EngineError
from twinserve.run_core.model_config import Llama3RopeScaling, ModelConfig


def read_checkpoint_config(path: str | Path) -> ModelConfig:
    """Reads ``config.json`` and, for the end-of-sequence ids, ``generation_config.json``.

    ``dtype`` is the type that the checkpoint was saved in, whether it can be served or not.

    Raises:
        EngineError: a folder without a readable config, or an architecture that is not supported.
    """
    folder = Path(path)
    file = folder / "config.json"
    raw = _read_json(file)
    _check_architecture(raw, folder)
    generation = folder / "generation_config.json"
    eos = (_read_json(generation) if generation.is_file() else {}).get("eos_token_id")
    try:
        values = _values(raw, raw.get("eos_token_id") if eos is None else eos)
    except KeyError as error:
        raise EngineError(f"{file} has no {error.args[0]!r}; get the file again") from error
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise EngineError(f"{file} holds a value of a wrong kind ({error})") from error
    if not all(type(token_id) is int for token_id in values["eos_token_ids"]):
        ids = values["eos_token_ids"]
        raise EngineError(f"{file}: eos_token_id is {ids!r}; should be one token id or a list of them")
    try:
        return ModelConfig(name=folder.name, **values)
    except ValueError as error:
        raise EngineError(f"{file}: {error}") from error


def _read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise EngineError(f"{file} is missing; a model folder in Hugging Face layout is needed")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise EngineError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise EngineError(f"{file} is not valid JSON ({error}); get it again") from error
    if not isinstance(content, dict):
        raise EngineError(f"{file} does not hold a JSON object")
    return content


def _architecture(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else "none named"


def _check_architecture(raw: Mapping[str, Any], folder: Path) -> None:
    """Only what the layers compute is let through: the wrong arithmetic would still give fluent-looking tokens."""
    supported = ("Qwen3ForCausalLM", "LlamaForCausalLM")
    name = _architecture(raw)
    if name not in supported:
        raise EngineError(f"{folder}: architecture {name} is not supported; {' and '.join(supported)} are")
    fixed = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "use_sliding_window": False}
    for key, value in fixed.items():
        if raw.get(key, value) != value:
            raise EngineError(f"{folder}: {key} = {raw[key]!r} is not supported, only {value!r}")


def _values(raw: Mapping[str, Any], eos: int | list[int] | None) -> dict[str, Any]:
    """The fields of ``ModelConfig`` but its name."""
    heads = raw["num_attention_heads"]
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    return {
        "num_hidden_layers": raw["num_hidden_layers"],
        "hidden_size": raw["hidden_size"],
        "num_attention_heads": heads,
        "num_key_value_heads": raw.get("num_key_value_heads") or heads,
        "head_dim": raw.get("head_dim") or raw["hidden_size"] // heads,
        "intermediate_size": raw["intermediate_size"],
        "vocab_size": raw["vocab_size"],
        "rms_norm_eps": raw["rms_norm_eps"],
        "rope_theta": float(raw.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
        "rope_scaling": _rope_scaling(rope),
        "max_position_embeddings": raw["max_position_embeddings"],
        "tie_word_embeddings": bool(raw.get("tie_word_embeddings", False)),
        "qk_norm": _architecture(raw).startswith("Qwen3"),
        "dtype": raw.get("dtype") or raw.get("torch_dtype") or "float32",
        "eos_token_ids": () if eos is None else (eos,) if isinstance(eos, int) else tuple(eos),
    }


def _rope_scaling(rope: Mapping[str, Any]) -> Llama3RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        raise EngineError(f"rope type {kind!r} is not supported; 'default' and 'llama3' are")
    return Llama3RopeScaling(
        factor=rope["factor"],
        low_freq_factor=rope["low_freq_factor"],
        high_freq_factor=rope["high_freq_factor"],
        original_max_position_embeddings=rope["original_max_position_embeddings"],
    )
