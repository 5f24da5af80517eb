"""The real engine that an experiment's configuration describes."""

from __future__ import annotations

from twinserve.experiments.backends.scheduler import scheduler_config
from twinserve.experiments.config.catalog import load_model
from twinserve.experiments.config.experiment import ExperimentConfig
from twinserve.experiments.config.graph_sizes import asked_capture_sizes
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.paths import resolve
from twinserve.real_backend.engine_config import EngineConfig, EngineOptions, ModelSource
from twinserve.run_core.model_config import SIMULATED_FIELDS, ModelConfig


def real_engine_config(experiment: Experiment) -> EngineConfig:
    """Model, scheduler and options of the engine.

    Raises:
        ConfigError: random weights are asked for and there is no file of such a model.
    """
    config = experiment.config
    return EngineConfig(
        model=_model_source(experiment),
        scheduler=scheduler_config(config.engine, num_blocks=1),  # the device decides
        options=_engine_options(config),
    )


def notes_on_model(experiment: Experiment, served: ModelConfig) -> tuple[str, ...]:
    """What to know where the file that a roofline would simulate is not of the model that was ``served``."""
    config = experiment.config
    if config.model.path is None or config.sim is None or config.sim.cost_model.kind != "roofline":
        return ()
    try:
        named = load_model(config.model.name, config.model.dtype, experiment.base_dir)
    except ConfigError:  # a name that only the roofline would need
        return ()
    differing = [name for name in SIMULATED_FIELDS if getattr(named, name) != getattr(served, name)]
    if not differing:
        return ()
    return (f"the checkpoint of model.path ran, and model.name {named.name} has another {', '.join(differing)}",)


def _model_source(experiment: Experiment) -> ModelSource:
    """A folder's own config.json describes it; a model without weights is described by its file in the catalogue."""
    model, base_dir = experiment.config.model, experiment.base_dir
    if model.path is not None:
        return ModelSource(path=str(resolve(model.path, base_dir)), load_format=model.load_format, dtype=model.dtype)
    described = load_model(model.name, model.dtype, base_dir) if model.load_format == "dummy" else None
    return ModelSource(config=described, load_format=model.load_format, dtype=model.dtype)


def _engine_options(config: ExperimentConfig) -> EngineOptions:
    engine, real = config.engine, config.real
    return EngineOptions(
        device=real.device,
        attention_backend=real.attention_backend,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        gpu_memory_limit_gib=real.gpu_memory_limit_gib,
        num_gpu_blocks_override=engine.num_gpu_blocks_override,
        enforce_eager=engine.enforce_eager,
        capture_sizes=asked_capture_sizes(engine),
        seed=config.seed,
    )
