"""Fills a model's parameters: from a Hugging Face folder, tensor by tensor, or with random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from math import sqrt
from pathlib import Path, PurePosixPath

import torch

from twinserve.real_backend.errors import EngineError, foreign_errors, shown
from twinserve.real_backend.model.json_files import is_file, read_json
from twinserve.real_backend.model.layers import DecoderLayer, DecoderWeights, empty_weights
from twinserve.run_core.model_config import ModelConfig

_INDEX = "model.safetensors.index.json"


def load_weights(weights: DecoderWeights, config: ModelConfig, path: str | Path) -> None:
    """Copies every tensor of the folder's safetensors file(s) into the fused parameters.

    Raises ``EngineError`` for a folder without safetensors, a corrupt or missing shard, and a tensor that is missing,
    unexpected, of the wrong shape or not floating point. The parameters are then partly filled.
    """
    missing = checkpoint_views(weights, config)
    for name, tensor, file in _stored_tensors(Path(path)):
        if _is_redundant(name, config):
            continue
        target = missing.pop(name, None)
        if target is None:
            raise EngineError(f"{file}: unexpected tensor {name!r}; does config.json describe another model?")
        _check(name, tensor, target, file)
        target.copy_(tensor)
    if missing:
        names = ", ".join(list(missing)[:3])
        raise EngineError(f"{path}: {len(missing)} tensors are missing from the checkpoint, among them {names}")


def check_stored(config: ModelConfig, path: str | Path) -> None:
    """Compares the names and shapes in the folder's safetensors headers with the config's; no tensor is read.

    Raises ``EngineError``. Memory for the parameters is taken afterwards, so that a damaged config asks for none.
    """
    stored = dict(_stored_shapes(Path(path)))
    if len(stored) < config.num_hidden_layers:
        raise EngineError(f"{path}: {config.num_hidden_layers} layers in config.json, {len(stored)} tensors stored")
    views = checkpoint_views(empty_weights(config, torch.device("meta"), torch.float32), config)
    for name, view in views.items():
        shape, file = stored.get(name, (None, None))
        if shape is not None and shape != list(view.shape):
            raise _misshapen(name, shape, view, file)


def fill_dummy_weights(weights: DecoderWeights, config: ModelConfig, seed: int = 0) -> None:
    """Random weights on the parameters' own device, the same for the same seed and device.

    Normal with variance 1 / fan-in, the two matrices that write to the residual stream shrunk by sqrt(2 layers), so
    that activations and logits are of order one at any depth and in any type; norms are 1.
    """
    generator = torch.Generator(device=weights.embedding.device).manual_seed(seed)
    residual_scale = 1 / sqrt(2 * config.num_hidden_layers)
    for name, tensor in checkpoint_views(weights, config).items():
        if tensor.dim() == 1:
            tensor.fill_(1.0)
            continue
        scale = residual_scale if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
        tensor.normal_(0.0, scale / sqrt(tensor.shape[1]), generator=generator)


def checkpoint_views(weights: DecoderWeights, config: ModelConfig) -> dict[str, torch.Tensor]:
    """Hugging Face's tensor names, each with the part of a fused parameter that it fills."""
    views = {"model.embed_tokens.weight": weights.embedding}
    for index, layer in enumerate(weights.layers):
        views.update({f"model.layers.{index}.{name}": view for name, view in _layer_views(layer, config).items()})
    views["model.norm.weight"] = weights.final_norm
    if not config.tie_word_embeddings:
        views["lm_head.weight"] = weights.lm_head
    return views


def _layer_views(layer: DecoderLayer, config: ModelConfig) -> dict[str, torch.Tensor]:
    q, k, v = layer.qkv.split((config.q_size, config.kv_size, config.kv_size))
    gate, up = layer.gate_up.chunk(2)
    views = {
        "input_layernorm.weight": layer.input_norm,
        "self_attn.q_proj.weight": q,
        "self_attn.k_proj.weight": k,
        "self_attn.v_proj.weight": v,
        "self_attn.o_proj.weight": layer.o,
        "post_attention_layernorm.weight": layer.post_attention_norm,
        "mlp.gate_proj.weight": gate,
        "mlp.up_proj.weight": up,
        "mlp.down_proj.weight": layer.down,
    }
    if layer.q_norm is not None and layer.k_norm is not None:
        views |= {"self_attn.q_norm.weight": layer.q_norm, "self_attn.k_norm.weight": layer.k_norm}
    return views


def _stored_tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor, Path]]:
    """(name, tensor on the CPU, file), one tensor in memory at a time."""
    from safetensors import safe_open

    for file in _files(folder):
        with _file_errors(file), safe_open(file, framework="pt", device="cpu") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (not a dict: it cannot be iterated)
                yield name, tensors.get_tensor(name), file


def _stored_shapes(folder: Path) -> Iterator[tuple[str, tuple[list[int], Path]]]:
    """(name, (shape, file)) of every tensor, from the headers."""
    from safetensors import safe_open

    for file in _files(folder):
        with _file_errors(file), safe_open(file, framework="pt", device="cpu") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (not a dict: it cannot be iterated)
                yield name, (list(tensors.get_slice(name).get_shape()), file)


def _file_errors(file: Path) -> AbstractContextManager[None]:
    return foreign_errors(f"{file} is not a readable safetensors file; get it again")


def _files(folder: Path) -> list[Path]:
    try:
        is_folder = folder.is_dir()
    except OSError as error:
        raise EngineError(f"model folder {folder} cannot be read: {error.strerror}") from error
    if not is_folder:
        raise EngineError(f"model folder {folder} does not exist")
    single, index = folder / "model.safetensors", folder / _INDEX
    if is_file(index):
        files = [folder / name for name in _shard_names(index)]
    elif is_file(single):
        files = [single]
    else:
        raise EngineError(f"{folder} has neither model.safetensors nor {_INDEX}; only safetensors can be loaded")
    for file in files:
        if not is_file(file):
            raise EngineError(f"shard {file} is missing, named by {_INDEX}")
    return files


def _shard_names(index: Path) -> list[str]:
    """The files that the index names; each must lie in its folder, whatever the index says."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise EngineError(f"{index} is not a valid index: it has no weight_map of tensor names to files")
    names = sorted(set(weight_map.values()))
    for name in names:
        is_plain = name.isprintable() and "\\" not in name and name == PurePosixPath(name).name
        if not is_plain or name in ("", ".", ".."):
            raise EngineError(f"{index}: weight_map names {shown(name)}; should be the name of a file in this folder")
    return names


def _is_redundant(name: str, config: ModelConfig) -> bool:
    """Tensors that some checkpoints carry and that follow from others: the tied head, rope frequencies."""
    return name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and config.tie_word_embeddings)


def _check(name: str, tensor: torch.Tensor, target: torch.Tensor, file: Path) -> None:
    if tensor.shape != target.shape:
        raise _misshapen(name, list(tensor.shape), target, file)
    if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise EngineError(f"{file}: tensor {name!r} is {tensor.dtype}, not float32, float16 or bfloat16")


def _misshapen(name: str, found: list[int], target: torch.Tensor, file: Path | None) -> EngineError:
    return EngineError(f"{file}: tensor {shown(name)} has shape {found}, the config asks for {list(target.shape)}")
