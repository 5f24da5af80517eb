"""The device that an engine runs on: found by name, and freed for the next engine."""

from __future__ import annotations

import gc

import torch

from twinserve.real_backend.errors import EngineError


def find_device(name: str) -> torch.device:
    """The device called ``name``, made the current one. Raises ``EngineError`` when there is none."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise EngineError(f"{name!r} is not a device; use cuda, cuda:1, ... or cpu", key="real.device") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            "no CUDA device is available; use the device cpu for a slow but exact run, or simulate with --backend sim",
            key="real.device",
        )
    if device.type not in ("cuda", "cpu"):
        raise EngineError(f"{name!r} is not supported; use cuda or cpu", key="real.device")
    return _current_gpu(device) if device.type == "cuda" else device


def free_device() -> None:
    """Gives back what nothing refers to any more, so that the next engine of this process finds it."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _current_gpu(device: torch.device) -> torch.device:
    """The device with its number, made the current one: streams, events and kernels go to that."""
    index, count = device.index or 0, torch.cuda.device_count()
    if index >= count:
        problem = f"{device} does not exist; there are {count} CUDA devices, from cuda:0"
        raise EngineError(problem, key="real.device")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)
