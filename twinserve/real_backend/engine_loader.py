"""Puts an engine together on its device: weights, attention, KV pool, graphs, runner."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from twinserve.real_backend.attention.base import AttentionBackend, AttentionShape
from twinserve.real_backend.attention.facts import ATTENTION_BACKENDS
from twinserve.real_backend.attention.registry import make_attention_backend
from twinserve.real_backend.device import find_device
from twinserve.real_backend.device_errors import clear_errors
from twinserve.real_backend.engine_config import EngineOptions, ModelSource
from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.gpu_driver import driver_version
from twinserve.real_backend.inputs.buffers import Capacity, StepBuffers
from twinserve.real_backend.inputs.input_batch import InputBatch
from twinserve.real_backend.launch.dummy_step import run_largest_step, warm_up
from twinserve.real_backend.launch.executor import Executor, allocate_kv_caches
from twinserve.real_backend.launch.graphs import capture_graphs
from twinserve.real_backend.launch.host_warmer import HostWarmer
from twinserve.real_backend.launch.kv_pool import KVPoolSize, hold_process_to, profile_step, size_pool
from twinserve.real_backend.launch.runner import ModelRunner
from twinserve.real_backend.launch.timer import make_timer
from twinserve.real_backend.memory_limits import check_pool_fits, check_weights_fit
from twinserve.real_backend.model.checkpoint_config import read_checkpoint_config
from twinserve.real_backend.model.model import Qwen3Model
from twinserve.real_backend.model.weights import check_stored, fill_dummy_weights, load_weights
from twinserve.run_core.model_config import DTYPE_BYTES, ModelConfig
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes, default_capture_sizes

_SUPPORTED = MappingProxyType(
    {"none": "no CUDA graphs", "decode": "graphs of decode steps only", "mixed": "graphs of any steps"}
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedEngine:
    """A runner that is ready for plans, and the scheduler settings completed by the pool's size.

    ``facts`` describe device, model and memory for a manifest.
    """

    runner: ModelRunner
    scheduler: SchedulerConfig
    model_config: ModelConfig
    pool: KVPoolSize
    facts: dict[str, Any]


def load_engine(source: ModelSource, scheduler: SchedulerConfig, options: EngineOptions) -> LoadedEngine:
    """Loads the model and sizes the KV pool; ``scheduler.num_blocks`` is replaced by what the device holds.

    Raises:
        EngineError: no such device, model or backend; a checkpoint that cannot be used; too little memory.
    """
    device = find_device(options.device)
    config = find_model_config(source, scheduler.max_model_len)
    total_bytes = hold_process_to(options.gpu_memory_limit_gib, device) if device.type == "cuda" else None
    with clear_errors("loading the model and its KV cache"):
        model = _load_model(source, config, device, scheduler.max_model_len, options.seed)
        attention = _attention(options.attention_backend, model, scheduler.block_size)
        sizes = _capture_sizes(options, attention, scheduler)
        capacity = Capacity.of(scheduler, sizes)
        pool = _pool(model, attention, capacity, scheduler.block_size, options, total_bytes)
        runner = _runner(model, attention, capacity, replace(scheduler, num_blocks=pool.num_blocks), sizes, options)
    return LoadedEngine(
        runner=runner,
        scheduler=replace(scheduler, num_blocks=pool.num_blocks),
        model_config=config,
        pool=pool,
        facts=_facts(model, attention, pool, sizes),
    )


def find_model_config(source: ModelSource, max_model_len: int) -> ModelConfig:
    """The model of ``source``, in the type that it is served in. Raises ``EngineError`` for one that cannot be."""
    config = _described(source)
    if source.dtype != "auto":
        config = replace(config, dtype=source.dtype)
    if config.dtype not in DTYPE_BYTES:
        raise EngineError(f"{config.dtype} is not supported; use one of {', '.join(DTYPE_BYTES)}", key="model.dtype")
    if max_model_len > config.max_position_embeddings:
        raise EngineError(
            f"{max_model_len} is more than the {config.max_position_embeddings} positions of {config.name}; lower it",
            key="engine.max_model_len",
        )
    return config


def _described(source: ModelSource) -> ModelConfig:
    if source.path is not None:
        return read_checkpoint_config(source.path)
    if source.config is None or source.load_format != "dummy":
        problem = "is missing; give a model folder, or model.load_format: dummy for random weights"
        raise EngineError(problem, key="model.path")
    return source.config


def _load_model(
    source: ModelSource, config: ModelConfig, device: torch.device, max_model_len: int, seed: int
) -> Qwen3Model:
    if source.path is not None and source.load_format != "dummy":
        check_stored(config, source.path)
    check_weights_fit(config, device, max_model_len)
    model = Qwen3Model(config, device, getattr(torch, config.dtype), num_positions=max_model_len)
    if source.path is None or source.load_format == "dummy":
        fill_dummy_weights(model.weights, config, seed)
    else:
        load_weights(model.weights, config, Path(source.path))
    return model


def _attention(name: str, model: Qwen3Model, block_size: int) -> AttentionBackend:
    config = model.config
    shape = AttentionShape(
        device=model.device,
        dtype=model.dtype,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        block_size=block_size,
    )
    return make_attention_backend(name, shape)


def _capture_sizes(options: EngineOptions, attention: AttentionBackend, scheduler: SchedulerConfig) -> CaptureSizes:
    if options.enforce_eager:
        return NO_GRAPHS
    sizes, support = options.capture_sizes, ATTENTION_BACKENDS[attention.name].graph_support
    if sizes is None:
        return default_capture_sizes(support, scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
    if (sizes.decode and support == "none") or (sizes.mixed and support != "mixed"):
        raise EngineError(
            f"attention backend {attention.name} supports {_SUPPORTED[support]}; "
            "leave the other sizes out, or set engine.enforce_eager",
            key="engine.cuda_graph_sizes",
        )
    return sizes


def _pool(
    model: Qwen3Model,
    attention: AttentionBackend,
    capacity: Capacity,
    block_size: int,
    options: EngineOptions,
    total_bytes: int | None,
) -> KVPoolSize:
    block_bytes = block_size * model.config.kv_bytes_per_token
    if options.num_gpu_blocks_override is not None:
        check_pool_fits(options.num_gpu_blocks_override, block_bytes, model.device)
        return KVPoolSize(
            num_blocks=options.num_gpu_blocks_override, block_bytes=block_bytes, source="num_gpu_blocks_override"
        )
    if total_bytes is None:
        problem = "is missing; on the CPU the memory is not measured, so give the number of KV blocks"
        raise EngineError(problem, key="engine.num_gpu_blocks_override")
    use = profile_step(lambda: run_largest_step(model, attention, capacity, block_size), model.device)
    return size_pool(
        total_bytes=total_bytes,
        gpu_memory_utilization=options.gpu_memory_utilization,
        use=use,
        block_bytes=block_bytes,
    )


def _runner(
    model: Qwen3Model,
    attention: AttentionBackend,
    capacity: Capacity,
    scheduler: SchedulerConfig,
    sizes: CaptureSizes,
    options: EngineOptions,
) -> ModelRunner:
    filler, block_size, max_model_len = scheduler.num_blocks, scheduler.block_size, scheduler.max_model_len
    buffers = StepBuffers(capacity, model.device, filler)
    noise_seed = options.seed if options.kv_cache_noise else None
    kv_caches = allocate_kv_caches(model, scheduler.num_blocks + 1, block_size, noise_seed=noise_seed)
    executor = Executor(model, attention, buffers, kv_caches)
    inputs = InputBatch(buffers, vocab_size=model.config.vocab_size, seed=options.seed, capture_sizes=sizes)
    if model.device.type == "cuda":
        warm_up(executor, buffers)
    timer, graphs = make_timer(model.device), None
    if sizes != NO_GRAPHS:
        graphs = capture_graphs(executor, buffers, timer, sizes, max_model_len=max_model_len)
    warmer = HostWarmer(scheduler, sizes) if model.device.type == "cuda" else None
    return ModelRunner(executor, inputs, timer, graphs=graphs, warmer=warmer)


def _facts(model: Qwen3Model, attention: AttentionBackend, pool: KVPoolSize, sizes: CaptureSizes) -> dict[str, Any]:
    on_gpu = model.device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(model.device) if on_gpu else "cpu",
        "driver": driver_version() if on_gpu else None,
        "cuda": torch.version.cuda if on_gpu else None,
        "torch": torch.__version__,
        "model": model.config.name,
        "num_parameters": model.config.num_parameters,
        "dtype": str(model.dtype).removeprefix("torch."),
        "attention_backend": attention.name,
        "capture_sizes": asdict(sizes),
        "kv_pool": asdict(pool),
    }
