"""How our own attention kernels cut their work, by the kind of GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class TileSizes:
    """``block_m`` query lines (``small_block_m`` where that would leave half the GPU idle) by ``block_n`` keys in a
    prefill tile, ``decode_block_n`` keys in a step of a decode row; stages are copies in flight.
    """

    block_m: int
    small_block_m: int
    block_n: int
    prefill_stages: int
    decode_block_n: int
    decode_stages: int

    @classmethod
    def of_device(cls, device: torch.device) -> TileSizes:
        """From sm_90 on an SM has twice the shared memory of an sm_89, where the tiles must fit in 99 KiB."""
        is_roomy = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9
        decode_block_n = 64 if is_roomy else 32
        return cls(
            block_m=128,
            small_block_m=64,
            block_n=64,
            prefill_stages=2,
            decode_block_n=decode_block_n,
            decode_stages=2 if is_roomy else 3,
        )


def num_multiprocessors(device: torch.device) -> int:
    """SMs of the GPU; any number does for Triton's interpreter, which runs on the CPU."""
    if device.type != "cuda":
        return 8
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
