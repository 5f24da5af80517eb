"""An experiment on the real engine; the only place that imports ``real_backend``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from twinserve.experiments.backends.backend_run import BLOCKS_KEY, BackendRun, Blocks, Progress
from twinserve.experiments.backends.real_settings import real_engine_settings
from twinserve.experiments.backends.scheduler import engine_policies
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import ConfigError, DeviceError, RunError
from twinserve.experiments.workloads import Workload
from twinserve.run_core.record import Recorder


def check_real(experiment: Experiment) -> None:
    """What can be known of a real run without its device.

    Raises:
        ConfigError: no weights are named, or a policy cannot be loaded.
    """
    model = experiment.config.model
    if model.path is None and model.load_format != "dummy":
        message = "is missing; give a model folder, or model.load_format: dummy for random weights"
        raise ConfigError(message, key="model.path")
    engine_policies(experiment)


def run_real(experiment: Experiment, workload: Workload, check: bool, on_progress: Progress | None) -> BackendRun:
    engine = experiment.config.engine
    with real_engine(experiment) as (backend, arguments):
        run = backend.run_experiment(
            **arguments,
            policies=engine_policies(experiment),
            traffic=workload.traffic(),
            recorder=Recorder(keep_plans=experiment.config.record.decisions),
            output_lens=workload.output_lens,
            check=check,
            on_progress=on_progress,
        )
    source = "device" if engine.num_gpu_blocks_override is None else BLOCKS_KEY
    blocks = Blocks(count=run.num_blocks, source=source)
    return BackendRun(record=run.record, blocks=blocks, facts=run.manifest, error=run.error)


@contextmanager
def real_engine(experiment: Experiment) -> Iterator[tuple[Any, dict[str, Any]]]:
    """``real_backend.build``, and its ``model``, ``scheduler`` and ``options`` arguments, while the block lasts.

    Raises:
        ConfigError: what the engine raises in the block; DeviceError when no setting is to blame.
    """
    backend, engine_error = _real_backend()
    try:
        yield backend, real_engine_settings(experiment)
    except engine_error as error:
        kind = DeviceError if error.key is None else ConfigError
        raise kind(error.message, key=error.key) from error


@contextmanager
def profiled_engine(
    experiment: Experiment, *, num_blocks: int | None, num_visits: int, density: float
) -> Iterator[Any]:
    """The real engine as a ``real_backend.profiling.profile.Profile``; ``num_blocks`` overrides the pool's size.

    Raises:
        ConfigError: something the engine needs is missing or wrong.
        RunError: the engine failed while it was measured.
    """
    known = {} if num_blocks is None else {"num_gpu_blocks_override": num_blocks}
    with real_engine(experiment) as (backend, arguments):
        profile = backend.load_profile(
            **arguments | {"options": arguments["options"] | known},
            make_policies=lambda: engine_policies(experiment),
            seed=experiment.config.seed,
            num_visits=num_visits,
            density=density,
        )
    _, engine_error = _real_backend()
    try:
        yield profile
    except engine_error as error:
        raise RunError(f"{error.message}; what was measured stays", key=error.key) from error


def _real_backend() -> tuple[Any, type[Any]]:
    """The real backend's entry and its exception type."""
    try:
        import twinserve.real_backend.build as backend
        from twinserve.real_backend.errors import EngineError
    except ImportError as error:
        message = f"the real backend cannot start ({error}); pip install 'twinserve[real]', or use --backend sim"
        raise ConfigError(message, key="backend") from error
    return backend, EngineError
