"""Shapes of a decoder model, from a Hugging Face folder or from the table of known models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from twinserve.real_backend.errors import EngineError

_SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3RopeScaling:
    """Llama 3.1's stretched rotary frequencies; names as in its config.json."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder with grouped-query attention and a SwiGLU MLP; names as in Hugging Face's config.json.

    ``qk_norm`` normalises q and k per head before the rotary embedding (Qwen3); Llama has none. ``dtype`` is what
    the checkpoint was saved in, a name such as ``bfloat16``. ``eos_token_ids`` may be empty.
    """

    name: str
    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int = 151936
    rms_norm_eps: float = 1e-6
    rope_theta: float = 1_000_000.0
    rope_scaling: Llama3RopeScaling | None = None
    max_position_embeddings: int = 40960
    tie_word_embeddings: bool = False
    qk_norm: bool = True
    dtype: str = "bfloat16"
    eos_token_ids: tuple[int, ...] = ()

    @property
    def q_size(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of K, and of V, per token and layer."""
        return self.num_key_value_heads * self.head_dim

    @property
    def num_parameters(self) -> int:
        attention = self.hidden_size * (2 * self.q_size + 2 * self.kv_size)
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        layer = attention + 3 * self.hidden_size * self.intermediate_size + norms
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * layer + embeddings + self.hidden_size

    def kv_bytes_per_token(self, bytes_per_value: int) -> int:
        return 2 * self.num_hidden_layers * self.kv_size * bytes_per_value

    @classmethod
    def from_name(cls, name: str) -> ModelConfig:
        """The shapes of a known model, such as ``Qwen/Qwen3-8B``; the owner may be left out.

        Raises ``EngineError`` for a name that is not in the table.
        """
        known = _known_models()
        wanted = name.rsplit("/", maxsplit=1)[-1]
        for full_name, config in known.items():
            if full_name.rsplit("/", maxsplit=1)[-1] == wanted:
                return config
        raise EngineError(f"model {name!r} is not known; give a model folder, or one of {', '.join(known)}")

    @classmethod
    def from_hf_folder(cls, path: str | Path) -> ModelConfig:
        """Reads ``config.json`` and, for the end-of-sequence ids, ``generation_config.json``.

        Raises ``EngineError`` for a folder without a readable config or an architecture that is not supported.
        """
        folder = Path(path)
        raw = _read_json(folder / "config.json")
        _check_architecture(raw, folder)
        generation = folder / "generation_config.json"
        eos = (_read_json(generation) if generation.is_file() else {}).get("eos_token_id")
        try:
            config = _from_raw(raw, folder.name, raw.get("eos_token_id") if eos is None else eos)
        except KeyError as error:
            raise EngineError(f"{folder / 'config.json'} has no {error.args[0]!r}; get the file again") from error
        except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise EngineError(f"{folder / 'config.json'} holds a value of a wrong kind ({error})") from error
        _check_sizes(config, folder / "config.json")
        return config


def _qwen3(name: str, layers: int, hidden: int, heads: int, intermediate: int) -> ModelConfig:
    return ModelConfig(
        name=name,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=intermediate,
        tie_word_embeddings=hidden <= 2560,
        eos_token_ids=(151645, 151643),
    )


def _llama_31_8b() -> ModelConfig:
    shapes = replace(_qwen3("meta-llama/Llama-3.1-8B", 32, 4096, 32, 14336), vocab_size=128256, qk_norm=False)
    scaling = Llama3RopeScaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
    )
    return replace(
        shapes,
        rms_norm_eps=1e-5,
        rope_theta=500_000.0,
        rope_scaling=scaling,
        max_position_embeddings=131072,
        eos_token_ids=(128001, 128008, 128009),
    )


def _known_models() -> dict[str, ModelConfig]:
    """Published shapes (the models' config.json on Hugging Face)."""
    models = (
        _qwen3("Qwen/Qwen3-0.6B", 28, 1024, 16, 3072),
        _qwen3("Qwen/Qwen3-1.7B", 28, 2048, 16, 6144),
        _qwen3("Qwen/Qwen3-4B", 36, 2560, 32, 9728),
        _qwen3("Qwen/Qwen3-8B", 36, 4096, 32, 12288),
        _qwen3("Qwen/Qwen3-14B", 40, 5120, 40, 17408),
        _qwen3("Qwen/Qwen3-32B", 64, 5120, 64, 25600),
        _llama_31_8b(),
    )
    return {model.name: model for model in models}


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


def _check_sizes(config: ModelConfig, file: Path) -> None:
    for name in _SIZES:
        value = getattr(config, name)
        if type(value) is not int or value < 1:
            raise EngineError(f"{file}: {name} is {value!r}; should be a whole number, 1 or more")
    if config.num_attention_heads % config.num_key_value_heads:
        raise EngineError(f"{file}: num_attention_heads is no multiple of num_key_value_heads")
    if not all(type(token_id) is int for token_id in config.eos_token_ids):
        raise EngineError(f"{file}: eos_token_id is {config.eos_token_ids!r}; should be one token id or a list of them")


def _from_raw(raw: Mapping[str, Any], name: str, eos: int | list[int] | None) -> ModelConfig:
    heads = raw["num_attention_heads"]
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    return ModelConfig(
        name=name,
        num_hidden_layers=raw["num_hidden_layers"],
        hidden_size=raw["hidden_size"],
        num_attention_heads=heads,
        num_key_value_heads=raw.get("num_key_value_heads") or heads,
        head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
        intermediate_size=raw["intermediate_size"],
        vocab_size=raw["vocab_size"],
        rms_norm_eps=raw["rms_norm_eps"],
        rope_theta=float(raw.get("rope_theta") or rope.get("rope_theta") or 10_000.0),
        rope_scaling=_rope_scaling(rope),
        max_position_embeddings=raw["max_position_embeddings"],
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        qk_norm=_architecture(raw).startswith("Qwen3"),
        dtype=raw.get("dtype") or raw.get("torch_dtype") or "float32",
        eos_token_ids=() if eos is None else (eos,) if isinstance(eos, int) else tuple(eos),
    )


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
