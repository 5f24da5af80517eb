"""The engine on the CPU, with a tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twinserve.real_backend.engine_config import EngineOptions, ModelSource
from twinserve.real_backend.engine_loader import LoadedEngine, load_engine
from twinserve.sched_core.config import SchedulerConfig


def load_on_cpu(folder: Path, config: SchedulerConfig, **options: Any) -> LoadedEngine:
    """The checkpoint in ``folder``, with the KV blocks that ``config`` says."""
    wanted = EngineOptions(device="cpu", num_gpu_blocks_override=config.num_blocks, **options)
    return load_engine(ModelSource(path=str(folder)), config, wanted)
