"""What the real engine is built from, besides the scheduler's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from twinserve.sched_core.dispatch import CaptureSizes

LoadFormat = Literal["auto", "safetensors", "dummy"]
DtypeName = Literal["auto", "bfloat16", "float16", "float32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Which model, and where its weights come from.

    With ``path`` (a Hugging Face folder) shapes and weights are read from there. Without it ``name`` gives the
    shapes of a known model and ``load_format`` must be ``dummy``: random weights. ``dtype`` ``auto`` is the type that
    the checkpoint was saved in.
    """

    name: str = ""
    path: str | None = None
    load_format: LoadFormat = "auto"
    dtype: DtypeName = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How the engine runs on its device.

    ``num_gpu_blocks_override`` sets the number of KV blocks; otherwise they fill ``gpu_memory_utilization`` of the
    device, or of ``gpu_memory_limit_gib`` (GiB) when the process is held to less. ``capture_sizes`` None lets the
    engine choose its CUDA graphs; ``enforce_eager`` has none. ``seed`` draws dummy weights and the seeds of requests
    that bring none. ``kv_cache_noise`` fills the KV cache with noise in place of zeros, which a device reads and
    multiplies with less power: for profiles, whose requests never computed the context that they claim.
    """

    device: str = "cuda"
    attention_backend: str = "auto"
    gpu_memory_utilization: float = 0.9
    gpu_memory_limit_gib: float | None = None
    num_gpu_blocks_override: int | None = None
    enforce_eager: bool = False
    capture_sizes: CaptureSizes | None = None
    seed: int = 0
    kv_cache_noise: bool = False
