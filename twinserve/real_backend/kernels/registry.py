"""Which pointwise kernels serve a device."""

from __future__ import annotations

import torch

from twinserve.real_backend.kernels.base import PointwiseKernels


def pointwise_kernels(device: torch.device) -> PointwiseKernels:
    """Triton on a CUDA device, plain torch elsewhere."""
    if device.type == "cuda":
        from twinserve.real_backend.kernels.triton_pointwise import TritonKernels

        return TritonKernels()
    from twinserve.real_backend.kernels.reference import TorchKernels

    return TorchKernels()
