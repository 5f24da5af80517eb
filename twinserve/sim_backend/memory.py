"""Estimates how many KV-cache blocks fit a GPU beside a model."""

from __future__ import annotations

from dataclasses import dataclass

from twinserve.run_core.model_config import ModelConfig
from twinserve.sim_backend.hardware import GIB, Hardware

FIXED_BYTES = GIB // 2  # CUDA context, libraries and allocator slack of one process
LOGITS_BYTES = 8  # a float32 logit and its probability while sampling


class ModelDoesNotFitError(ValueError):
    """Weights and activations leave no room for a single KV block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Bytes of one GPU by use. ``usable`` is the share that ``gpu_memory_utilization`` grants."""

    usable: int
    weights: int
    activations: int
    fixed: int

    @property
    def kv_cache(self) -> int:
        return self.usable - self.weights - self.activations - self.fixed


def plan_memory(
    model: ModelConfig,
    hardware: Hardware,
    *,
    gpu_memory_utilization: float = 0.9,
    max_num_batched_tokens: int = 2048,
    max_num_seqs: int = 128,
) -> MemoryPlan:
    """The memory of a step of the largest size: its widest MLP and attention tensors plus the sampled logits."""
    widest = 3 * model.intermediate_size + 4 * model.hidden_size
    return MemoryPlan(
        usable=int(hardware.memory_bytes * gpu_memory_utilization),
        weights=model.weight_bytes,
        activations=max_num_batched_tokens * widest * model.dtype_bytes
        + max_num_seqs * model.vocab_size * LOGITS_BYTES,
        fixed=FIXED_BYTES,
    )


def num_kv_blocks(
    model: ModelConfig,
    hardware: Hardware,
    *,
    block_size: int,
    gpu_memory_utilization: float = 0.9,
    max_num_batched_tokens: int = 2048,
    max_num_seqs: int = 128,
) -> int:
    """Blocks of ``block_size`` tokens that fit beside the model.

    Raises:
        ModelDoesNotFitError: not even one block fits; the message names the sizes in GiB.
    """
    plan = plan_memory(
        model,
        hardware,
        gpu_memory_utilization=gpu_memory_utilization,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
    )
    blocks = plan.kv_cache // (block_size * model.kv_bytes_per_token)
    if blocks < 1:
        raise ModelDoesNotFitError(
            f"{model.name} does not fit {hardware.name}: {plan.weights / GIB:.1f} GiB of weights and "
            f"{(plan.activations + plan.fixed) / GIB:.1f} GiB of activations and overhead leave no KV block in "
            f"{plan.usable / GIB:.1f} GiB (gpu_memory_utilization {gpu_memory_utilization}); "
            "take a larger GPU, a smaller model, or set num_gpu_blocks_override"
        )
    return blocks
