"""How many KV blocks fit: what the device may hold, less the profiled peak of everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from twinserve.real_backend.errors import EngineError

GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class KVPoolSize:
    """The size of the KV pool and where it comes from. The byte counts are None when nothing was profiled.

    ``requested_bytes`` is what the process may use in all; ``peak_bytes`` the most that weights and a step of the
    largest size allocate; ``other_bytes`` what lies on the device outside torch's allocator (CUDA context, others).
    """

    num_blocks: int
    block_bytes: int
    source: Literal["num_gpu_blocks_override", "profiled"]
    requested_bytes: int | None = None
    peak_bytes: int | None = None
    other_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """A profiled step: peak of torch's allocator, and memory in use on the device outside it (bytes)."""

    peak_bytes: int
    other_bytes: int


def hold_process_to(limit_gib: float | None, device: torch.device) -> int:
    """Caps this process's allocations at ``limit_gib``; returns the bytes that the device counts as having."""
    total = int(torch.cuda.get_device_properties(device).total_memory)
    limit = total if limit_gib is None else int(limit_gib * GIB)
    if not 0 < limit <= total:
        raise EngineError(
            f"{limit_gib} is not within the device's {total / GIB:.1f} GiB; lower it or leave it out",
            key="real.gpu_memory_limit_gib",
        )
    torch.cuda.set_per_process_memory_fraction(limit / total, device)
    return limit


def profile_step(largest_step: Callable[[], object], device: torch.device) -> MemoryUse:
    """Runs the largest step once and measures it. Weights must be loaded, the KV pool not yet allocated."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    largest_step()
    torch.cuda.synchronize(device)
    peak = int(torch.cuda.max_memory_allocated(device))
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return MemoryUse(peak_bytes=peak, other_bytes=max(total - free - int(torch.cuda.memory_reserved(device)), 0))


def size_pool(*, total_bytes: int, gpu_memory_utilization: float, use: MemoryUse, block_bytes: int) -> KVPoolSize:
    """Blocks that fit beside ``use`` into a share of ``total_bytes``; one more page is kept for padding rows.

    Raises:
        EngineError: not one block fits.
    """
    requested = int(total_bytes * gpu_memory_utilization)
    left = requested - use.peak_bytes - use.other_bytes
    num_blocks = left // block_bytes - 1
    if num_blocks < 1:
        raise EngineError(
            f"no KV block fits: {requested / GIB:.2f} GiB may be used, weights and the largest step need "
            f"{use.peak_bytes / GIB:.2f}, other use of the device {use.other_bytes / GIB:.2f}, and a block takes "
            f"{block_bytes / GIB:.4f}; raise engine.gpu_memory_utilization, or lower engine.max_num_batched_tokens or "
            "engine.block_size, or take a smaller model"
        )
    return KVPoolSize(
        num_blocks=num_blocks,
        block_bytes=block_bytes,
        source="profiled",
        requested_bytes=requested,
        peak_bytes=use.peak_bytes,
        other_bytes=use.other_bytes,
    )
