"""What a device raises, in one line that the user can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from twinserve.real_backend.errors import EngineError, one_line

_NO_ROOM_ON_CPU = ("DefaultCPUAllocator", "can't allocate memory", "Storage size calculation overflowed")


@contextmanager
def clear_errors(doing: str) -> Iterator[None]:
    """Turns errors of the device into EngineError; ``doing`` completes "out of memory while ..."."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise EngineError(
            f"the device is out of memory while {doing}; lower engine.gpu_memory_utilization, "
            "engine.num_gpu_blocks_override or engine.max_num_batched_tokens, or take a smaller model"
        ) from error
    except torch.AcceleratorError as error:
        first_line = str(error).partition("\n")[0]
        raise EngineError(f"the device failed while {doing}: {first_line}") from error
    except RuntimeError as error:
        if not any(words in str(error) for words in _NO_ROOM_ON_CPU):
            raise
        raise EngineError(f"there is too little memory for {doing}: {one_line(str(error))[-120:]}") from error
