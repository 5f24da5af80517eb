"""What the real engine is built from; no torch, so that a configuration can be turned into it anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from twinserve.run_core.model_config import ModelConfig
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.dispatch import CaptureSizes

LoadFormat = Literal["auto", "safetensors", "dummy"]
DtypeName = Literal["auto", "bfloat16", "float16", "float32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Which model, and where its weights come from.

    With ``path`` (a Hugging Face folder) architecture and weights are read from there, with ``load_format`` ``dummy``
    the architecture only. Without it ``config`` is the architecture and ``load_format`` must be ``dummy``: random
    weights. ``dtype`` ``auto`` is the type that the checkpoint was saved in, or that of ``config``.
    """

    path: str | None = None
    config: ModelConfig | None = None
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


class EngineConfig(NamedTuple):
    """The whole engine. ``scheduler.num_blocks`` is replaced by what the device holds."""

    model: ModelSource
    scheduler: SchedulerConfig
    options: EngineOptions

    def with_kv_cache_noise(self) -> EngineConfig:
        """The engine with a KV cache that can be measured without having been computed."""
        return self._replace(options=replace(self.options, kv_cache_noise=True))
