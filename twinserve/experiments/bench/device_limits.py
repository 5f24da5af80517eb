"""The roofline at the device's measured peaks: the floor of a step by part, and of a whole run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from twinserve.experiments.files.atomic import write_text
from twinserve.experiments.settings.yaml_loader import dump_yaml
from twinserve.run_core.model_config import ModelConfig
from twinserve.sim_backend.hardware import Hardware
from twinserve.sim_backend.roofline import RooflineCostModel

HARDWARE_FILE, MODEL_FILE = "hardware.yaml", "model.yaml"
_RESIDUAL_BYTES = 4  # the residual stream is float32


def measured_hardware(device: str, memory_gib: float, matmul_tflops: float, copy_tbps: float) -> Hardware:
    """The device at its measured peaks, with a host that costs nothing."""
    return Hardware(
        name=f"{device} (measured)",
        tflops=round(matmul_tflops, 1),
        memory_bandwidth_gbps=round(copy_tbps * 1e3),
        memory_gib=round(memory_gib, 1),
    )


def write_catalog_files(folder: Path, hardware: Hardware, model: ModelConfig) -> None:
    """Both as files that a configuration may name, under ``sim.cost_model.hardware`` and ``model.name``."""
    write_text(folder / HARDWARE_FILE, dump_yaml(asdict(hardware)))
    described = asdict(model)
    del described["dtype"]  # model.dtype says it
    write_text(folder / MODEL_FILE, dump_yaml(described))


def limit_settings(folder: Path, num_blocks: int) -> dict[str, Any]:
    """Settings that turn a run's experiment into its limit: the simulation of it, every step at the roofline."""
    hardware = str((folder / HARDWARE_FILE).absolute())
    return {
        "backend": "sim",
        "sim": {"cost_model": {"kind": "roofline", "hardware": hardware}},
        "model.name": str((folder / MODEL_FILE).absolute()),
        "engine.enforce_eager": True,  # no padding to a graph's size
        "engine.cuda_graph_sizes": None,
        "engine.num_gpu_blocks_override": num_blocks,
    }


def step_floors(hardware: Hardware, model: ModelConfig, rows: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Floor (ms) of each part of a step of ``rows`` (num_computed, num_new), each of which samples.

    The longer of memory traffic and arithmetic. Activations of a small step stay in the device's cache, so pointwise
    kernels can be faster than theirs.
    """
    roofline = RooflineCostModel(model, hardware)
    computed, new = np.array(rows, dtype=np.int64).T
    is_decode = new == 1
    pairs = new * computed + new * (new + 1) // 2
    context = computed + new
    tokens, samples = int(new.sum()), len(rows)
    nanoseconds = {
        "gemm": roofline.dense_ns(tokens),
        "attention": roofline.decode_attention_ns(int(context[is_decode].sum()))
        + roofline.prefill_attention_ns(int(pairs[~is_decode].sum()), int(context[~is_decode].sum())),
        "pointwise": tokens * _pointwise_bytes(model) / hardware.bytes_per_ns,
        "head": roofline.head_ns(samples),
        "sampling": samples * model.vocab_size * model.dtype_bytes / hardware.bytes_per_ns,
    }
    return {part: value / 1e6 for part, value in nanoseconds.items()}


def whole_step_floor(floors: Mapping[str, float]) -> float:
    """The floor of a whole step (ms): matrix products, attention and head; the rest could be fused into them."""
    return floors["gemm"] + floors["attention"] + floors["head"]


def _pointwise_bytes(model: ModelConfig) -> int:
    """Read and written per token by the fused kernels of all layers: two norms with the residual, rope, activation."""
    query, key_value = (heads * model.head_dim for heads in (model.num_attention_heads, 2 * model.num_key_value_heads))
    norms = 2 * model.hidden_size * 2 * (model.dtype_bytes + _RESIDUAL_BYTES)
    rope = 2 * (query + key_value) * model.dtype_bytes
    activation = 3 * model.intermediate_size * model.dtype_bytes
    return model.num_hidden_layers * (norms + rope + activation)
