"""What cannot fit the device is refused before memory is taken."""

from __future__ import annotations

import os

import torch

from twinserve.real_backend.errors import EngineError
from twinserve.run_core.model_config import ModelConfig

_GIB = 1 << 30


def check_weights_fit(config: ModelConfig, device: torch.device, num_positions: int) -> None:
    """Raises EngineError when weights and rotary table need more memory than the device has in all."""
    needed, total = config.weight_bytes + 4 * num_positions * config.head_dim, _total_bytes(device)
    if needed > total:
        raise EngineError(
            f"{config.name} needs {needed / _GIB:.1f} GiB for its weights in {config.dtype}, {device} has "
            f"{total / _GIB:.1f} GiB; take a smaller model"
        )


def check_pool_fits(num_blocks: int, block_bytes: int, device: torch.device) -> None:
    """Raises EngineError when so many KV blocks need more memory than the device has in all."""
    total = _total_bytes(device)
    if num_blocks * block_bytes > total:
        raise EngineError(
            f"{num_blocks} blocks need {num_blocks * block_bytes / _GIB:.1f} GiB, {device} has {total / _GIB:.1f} GiB; "
            "lower it",
            key="engine.num_gpu_blocks_override",
        )


def _total_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
