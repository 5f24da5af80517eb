"""What the real backend is built from, out of a configuration; in plain values, since it must not be imported here."""

from __future__ import annotations

from typing import Any

from twinserve.experiments.config.experiment import ExperimentConfig
from twinserve.experiments.config.graph_sizes import asked_capture_sizes
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.settings.paths import resolve


def real_engine_settings(experiment: Experiment) -> dict[str, Any]:
    """The ``model``, ``scheduler`` and ``options`` arguments of ``twinserve.real_backend.build``'s functions."""
    config = experiment.config
    return {
        "model": config.model.model_dump() | {"path": _model_folder(experiment)},
        "scheduler": config.engine.scheduler_fields(),
        "options": _engine_options(config),
    }


def _model_folder(experiment: Experiment) -> str | None:
    path = experiment.config.model.path
    return None if path is None else str(resolve(path, experiment.base_dir))


def _engine_options(config: ExperimentConfig) -> dict[str, Any]:
    """What decides how a real engine runs on its device: the fields of the backend's options."""
    engine = config.engine
    return config.real.model_dump() | {
        "enforce_eager": engine.enforce_eager,
        "capture_sizes": asked_capture_sizes(engine),
        "num_gpu_blocks_override": engine.num_gpu_blocks_override,
        "gpu_memory_utilization": engine.gpu_memory_utilization,
        "seed": config.seed,
    }
