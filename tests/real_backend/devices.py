"""Where Triton kernels can be tested: on a GPU, or on the CPU in Triton's interpreter."""

from __future__ import annotations

import os

import pytest
import torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
on_gpu = [pytest.mark.gpu, needs_gpu]
interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="needs TRITON_INTERPRET=1 (and numpy < 2.4)"
)
