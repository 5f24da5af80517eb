"""Reads LLMServingSim's kernel times (dense.csv, per_sequence.csv, attention.csv, meta.yaml) as steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from twinserve.experiments.calibrate.facts import Facts, Source
from twinserve.experiments.config.catalog import load_model
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.yaml_loader import read_yaml
from twinserve.experiments.workloads.formats.reading import read_csv, seconds, whole_number
from twinserve.sched_core.dispatch import CaptureSizes
from twinserve.sim_backend.arrays import Floats
from twinserve.sim_backend.calibration.values import MeasuredEngine
from twinserve.sim_backend.fitting.kernels import EngineLimits, KernelProfile, kernel_steps

META, DENSE, PER_SEQUENCE, ATTENTION = "meta.yaml", "dense.csv", "per_sequence.csv", "attention.csv"
"""LLMServingSim's file names."""
LAYERS_OF_A_BLOCK: Mapping[str, int] = MappingProxyType(
    {
        "layernorm": 2,  # before attention and before the MLP
        "qkv_proj": 1,
        "q_norm": 1,
        "k_norm": 1,
        "qk_norm": 1,
        "rotary_emb": 1,
        "o_proj": 1,
        "gate_up_proj": 1,
        "act_fn": 1,
        "down_proj": 1,
    }
)
"""How often each measured layer runs in one decoder block."""
LAYERS_OF_A_STEP = ("embedding", "final_layernorm")
DTYPES: Mapping[str, str] = MappingProxyType({"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"})
LARGEST_GRAPH = 512


def kernel_source(folder: Path, num_blocks: int | None = None) -> Source:
    """Steps of vLLM put together from kernel times; the folder does not know the KV pool, so ``num_blocks`` is needed.

    Graphs are those that vLLM captures by default for the profile's ``max_num_seqs``.

    Raises:
        ConfigError: no ``num_blocks``, a file that is missing or wrong, or a model that is not in the catalogue.
    """
    if num_blocks is None:
        raise ConfigError("kernel times know of no KV pool; give the engine's number of blocks", key="--num-blocks")
    meta = read_yaml(folder / META)
    engine = _section(meta, "engine_effective", folder)
    seqs, tokens, block_size = (
        _count(engine, name, folder) for name in ("max_num_seqs", "max_num_batched_tokens", "block_size")
    )
    measured = MeasuredEngine(
        gpu=str(meta.get("gpu")),
        model=str(meta.get("model")),
        dtype=DTYPES.get(str(meta.get("variant")), str(meta.get("variant"))),
        attention_backend=f"vllm {meta.get('vllm_version')}",
        block_size=block_size,
        num_blocks=num_blocks,
        capture_sizes=vllm_capture_sizes(seqs),
    )
    limits = EngineLimits(
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        num_kv_tokens=num_blocks * block_size,
        capture_sizes=measured.capture_sizes,
    )
    steps = kernel_steps(_profile(folder, measured), limits)
    origin = f"{len(steps)} steps put together from LLMServingSim's kernel times {folder.name} (MIT)"
    facts = Facts(folder=folder, engine=measured, timed=True)
    return Source(facts, steps, origin, (f"{folder.name} holds kernel times only: the host gap is zero",))


def vllm_capture_sizes(max_num_seqs: int) -> CaptureSizes:
    """vLLM V1's default graphs: full ones for decodes up to ``max_num_seqs``, piecewise ones for any step."""
    largest = min(2 * max_num_seqs, LARGEST_GRAPH)
    sizes = [size for size in (1, 2, 4, *range(8, 256, 8), *range(256, LARGEST_GRAPH + 1, 16)) if size <= largest]
    return CaptureSizes(decode=tuple(size for size in sizes if size <= max_num_seqs), mixed=tuple(sizes))


def _profile(folder: Path, engine: MeasuredEngine) -> KernelProfile:
    num_layers = load_model(engine.model, engine.dtype, folder).num_hidden_layers
    often = {name: times * num_layers for name, times in LAYERS_OF_A_BLOCK.items()} | dict.fromkeys(LAYERS_OF_A_STEP, 1)
    return KernelProfile(
        num_layers=num_layers,
        dense=_summed(folder / DENSE, "tokens", often),
        head=_summed(folder / PER_SEQUENCE, "sequences", {"lm_head": 1, "sampler": 1}),
        attention=_attention(folder / ATTENTION),
    )


def _summed(path: Path, size: str, often: Mapping[str, int]) -> tuple[Floats, Floats]:
    """The sizes that were measured, and the time of all layers of ``path`` together."""
    rows = read_csv(path, {"layer": str, size: whole_number, "time_us": seconds})
    curves: dict[str, dict[int, float]] = {}
    for line, layer, tokens, time_us in zip(rows.lines, *rows.columns.values(), strict=True):
        if layer not in often:
            message = f"{layer!r} is no layer of a dense decoder; known are {', '.join(often)}"
            raise ConfigError(message, file=path, key=f"line {line}")
        curves.setdefault(layer, {})[tokens] = time_us
    sizes = sorted(set.intersection(*(set(curve) for curve in curves.values())))
    if not sizes:
        raise ConfigError(f"no {size} for which every layer was measured", file=path)
    total = [sum(often[layer] * curve[tokens] for layer, curve in curves.items()) for tokens in sizes]
    return np.array(sizes, dtype=np.float64), np.array(total)


def _attention(path: Path) -> Any:
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    rows = read_csv(path, {**dict.fromkeys(names, whole_number), "time_us": seconds})
    return np.array(list(rows.columns.values()), dtype=np.float64).T


def _section(meta: Mapping[str, Any], name: str, folder: Path) -> Mapping[str, Any]:
    section = meta.get(name)
    if not isinstance(section, dict):
        raise ConfigError("is missing; it says how the engine was set up", file=folder / META, key=name)
    return section


def _count(engine: Mapping[str, Any], name: str, folder: Path) -> int:
    value = engine.get(name)
    if not isinstance(value, int) or value < 1:
        key = f"engine_effective.{name}"
        raise ConfigError(f"got {value!r}; expected a whole number", file=folder / META, key=key)
    return value
