"""What a checkpoint says of its model: config.json of a Hugging Face folder as a ``ModelConfig``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from twinserve.real_backend.errors import EngineError, shown
from twinserve.real_backend.model.json_files import is_file, read_json
from twinserve.run_core.model_config import Llama3RopeScaling, ModelConfig

_LARGEST_POSITIONS = 1 << 31
_LARGEST: Mapping[str, int] = MappingProxyType(
    {
        "num_hidden_layers": 1 << 12,
        "hidden_size": 1 << 20,
        "num_attention_heads": 1 << 12,
        "intermediate_size": 1 << 22,
        "vocab_size": 1 << 28,
        "max_position_embeddings": _LARGEST_POSITIONS,
    }
)
"""Far above any model: beyond them a file is damaged, and what follows from it would not fit any number."""

_LARGEST_HEAD_DIM = 1 << 12
_LARGEST_NUMBER = 1e30
_QWEN3_HEAD_DIM = 128
"""Where a Qwen3 config.json names none, as in transformers."""


def read_checkpoint_config(path: str | Path) -> ModelConfig:
    """Reads ``config.json`` and, for the end-of-sequence ids, ``generation_config.json``.

    ``dtype`` is the type that the checkpoint was saved in, whether it can be served or not.

    Raises:
        EngineError: a folder without a readable config, or an architecture that is not supported.
    """
    folder = Path(path)
    file = folder / "config.json"
    raw = read_json(file)
    _check_architecture(raw, file)
    generation = folder / "generation_config.json"
    chosen = read_json(generation).get("eos_token_id") if is_file(generation) else None
    eos_file, eos = (file, raw.get("eos_token_id")) if chosen is None else (generation, chosen)
    values = _Values(raw, file)
    try:
        return ModelConfig(
            name=folder.name, **_sizes(values), **_others(values), eos_token_ids=_eos_token_ids(eos, eos_file)
        )
    except ValueError as error:
        raise EngineError(f"{file}: {error}") from error


class _Values:
    """The values of a config.json, each checked when it is asked for."""

    def __init__(self, raw: Mapping[str, Any], file: Path, inside: str = "") -> None:
        self.raw = raw
        self.file = file
        self._inside = inside

    def inside(self, key: str) -> _Values:
        """The object under ``key``; empty when there is none."""
        value = self.raw.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(key, value, "an object")
        return _Values(value or {}, self.file, f"{self._inside}{key}.")

    def whole(self, key: str, most: int, default: int | None = None) -> int:
        value = self._get(key, default)
        if type(value) is not int or not 1 <= value <= most:
            raise self.wrong(key, value, f"a whole number from 1 to {most}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if type(value) not in (int, float) or not 0 < value <= _LARGEST_NUMBER:
            raise self.wrong(key, value, "a positive number")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._get(key, False)
        if type(value) is not bool:
            raise self.wrong(key, value, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, value, "a text")
        return value

    def wrong(self, key: str, value: Any, right: str) -> EngineError:
        return EngineError(f"{self.file}: {self._inside}{key} is {shown(value)}; should be {right}")

    def _get(self, key: str, default: Any) -> Any:
        value = self.raw.get(key)
        if value is None:
            value = default
        if value is None:
            raise EngineError(f"{self.file} has no {self._inside + key!r}; get the file again")
        return value


def _architecture(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else "none named"


def _check_architecture(raw: Mapping[str, Any], file: Path) -> None:
    """Only what the layers compute is let through: the wrong arithmetic would still give fluent-looking tokens."""
    supported = ("Qwen3ForCausalLM", "LlamaForCausalLM")
    name = _architecture(raw)
    if name not in supported:
        raise EngineError(f"{file}: architecture {name[:60]} is not supported; {' and '.join(supported)} are")
    fixed = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "use_sliding_window": False}
    for key, only in fixed.items():
        value = raw.get(key)
        if value is not None and value != only:
            raise EngineError(f"{file}: {key} = {shown(value)} is not supported, only {only!r}")
    layer_types = raw.get("layer_types")
    if layer_types is not None and any(kind != "full_attention" for kind in _listed(layer_types)):
        raise EngineError(f"{file}: layer_types may only hold 'full_attention'; other kinds are not supported")
    for key in ("quantization_config", "compression_config"):
        if raw.get(key) is not None:
            raise EngineError(f"{file}: {key} is not supported; take a checkpoint in float32, float16 or bfloat16")


def _sizes(values: _Values) -> dict[str, Any]:
    """The fields of ``ModelConfig`` that memory is taken by."""
    sizes = {key: values.whole(key, most) for key, most in _LARGEST.items()}
    heads = sizes["num_attention_heads"]
    is_qwen3 = _architecture(values.raw).startswith("Qwen3")
    head_dim = _QWEN3_HEAD_DIM if is_qwen3 else max(sizes["hidden_size"] // heads, 1)
    sizes["num_key_value_heads"] = values.whole("num_key_value_heads", _LARGEST["num_attention_heads"], heads)
    sizes["head_dim"] = values.whole("head_dim", _LARGEST_HEAD_DIM, head_dim)
    if sizes["head_dim"] % 2:
        raise values.wrong("head_dim", sizes["head_dim"], "even")
    return sizes


def _others(values: _Values) -> dict[str, Any]:
    rope = values.inside("rope_parameters")
    if not rope.raw:
        rope = values.inside("rope_scaling")
    theta = values if values.raw.get("rope_theta") is not None else rope
    dtype = values.text("torch_dtype", "float32")
    return {
        "rms_norm_eps": values.number("rms_norm_eps"),
        "rope_theta": theta.number("rope_theta", 10_000.0),
        "rope_scaling": _rope_scaling(rope),
        "tie_word_embeddings": values.flag("tie_word_embeddings"),
        "qk_norm": _architecture(values.raw).startswith("Qwen3"),
        "dtype": values.text("dtype", dtype),
    }


def _rope_scaling(rope: _Values) -> Llama3RopeScaling | None:
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise EngineError(f"{rope.file}: rope type {shown(kind)} is not supported; 'default' and 'llama3' are")
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if low >= high:
        raise rope.wrong("high_freq_factor", high, "more than low_freq_factor")
    return Llama3RopeScaling(
        factor=rope.number("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_position_embeddings=rope.whole("original_max_position_embeddings", _LARGEST_POSITIONS),
    )


def _eos_token_ids(eos: Any, file: Path) -> tuple[int, ...]:
    """One id, a list of them, or nothing; the file that names them is blamed."""
    ids = () if eos is None else _listed(eos)
    if not all(type(token_id) is int for token_id in ids):
        raise EngineError(f"{file}: eos_token_id is {shown(eos)}; should be one token id or a list of them")
    return ids


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)
