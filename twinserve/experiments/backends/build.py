"""From a configuration to running objects; the one place that reaches for a backend."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from twinserve.experiments.backends.real_settings import real_engine_settings
from twinserve.experiments.config.cost_model import CostModelConfig, build_cost_model, known_num_blocks
from twinserve.experiments.config.engine import EngineSection
from twinserve.experiments.config.graph_sizes import simulated_capture_sizes
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import ConfigError, DeviceError, RunError
from twinserve.experiments.workloads import Workload, build_workload
from twinserve.run_core.record import Recorder, RunRecord
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.dispatch import CaptureSizes
from twinserve.sched_core.errors import StuckError
from twinserve.sched_core.features import StepFeatures
from twinserve.sched_core.invariants import InvariantError
from twinserve.sched_core.policies.interfaces import StepTimeEstimator
from twinserve.sched_core.policies.registry import Policies, build_policies
from twinserve.sim_backend.calibration.cost_model import (
    CalibratedCostModel,
    CalibrationRangeError,
    CalibrationRangeWarning,
)
from twinserve.sim_backend.cost_model import CostModel
from twinserve.sim_backend.replay import ReplayCostModel, ReplayError

Progress = Callable[[int, int], None]

BLOCKS_KEY = "engine.num_gpu_blocks_override"
_TOO_LONG = "the simulated time does not fit 63 bits of nanoseconds (292 years); lower the step times of sim.cost_model"
SIMULATION_ERRORS = (StuckError, InvariantError, ReplayError, CalibrationRangeError)
"""What can end a simulation early: a policy that never schedules, a broken promise, a cost model at its limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """How many KV blocks an engine has, and who said so."""

    count: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRun:
    """What a backend returns: the record, the pool it ran with, and facts for the manifest.

    ``error`` says why the run ended early (None: it did not); the record then holds what had finished. ``warnings``
    belong in the result.
    """

    record: RunRecord
    blocks: Blocks
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """All that a simulated run needs besides its traffic; fresh for one run, since policies and models hold state."""

    scheduler: SchedulerConfig
    policies: Policies
    cost_model: CostModel
    capture_sizes: CaptureSizes
    blocks: Blocks


def build_requests(experiment: Experiment) -> Workload:
    """The requests of an experiment, drawn from its seed and repeat."""
    config = experiment.config
    return build_workload(
        config.workload,
        seed=config.seed,
        repeat=config.repeat,
        max_model_len=config.engine.max_model_len,
        base_dir=experiment.base_dir,
    )


def build_simulation(experiment: Experiment) -> Simulation:
    """Scheduler, policies and cost model of a simulated run.

    Raises:
        ConfigError: an input file is missing or wrong, a policy cannot be loaded, the pool's size is unknown.
    """
    config = experiment.config
    if config.sim is None:
        raise ConfigError("is missing; add sim.cost_model, or use --backend real", key="sim")
    source = config.sim.cost_model
    try:
        cost_model = build_cost_model(source, model=config.model, base_dir=experiment.base_dir)
    except ValueError as error:  # step times that cannot be, such as a recording that runs backwards
        raise ConfigError(str(error), key="sim.cost_model") from error
    blocks = _simulated_blocks(experiment, source)
    return Simulation(
        scheduler=scheduler_config(config.engine, blocks.count),
        policies=engine_policies(config.engine, _estimator(cost_model)),
        cost_model=cost_model,
        capture_sizes=simulated_capture_sizes(config, experiment.base_dir),
        blocks=blocks,
    )


def check_real(experiment: Experiment) -> None:
    """What can be known of a real run without its device.

    Raises:
        ConfigError: no weights are named, or a policy cannot be loaded.
    """
    model = experiment.config.model
    if model.path is None and model.load_format != "dummy":
        message = "is missing; give a model folder, or model.load_format: dummy for random weights"
        raise ConfigError(message, key="model.path")
    engine_policies(experiment.config.engine, None)


def run_backend(experiment: Experiment, workload: Workload, *, check: bool, on_progress: Progress | None) -> BackendRun:
    """Run the workload on the backend that the configuration names.

    Raises:
        ConfigError: something the backend needs is missing or wrong.
    """
    run = _run_real if experiment.config.backend == "real" else _run_simulated
    return run(experiment, workload, check, on_progress)


def _run_simulated(experiment: Experiment, workload: Workload, check: bool, on_progress: Progress | None) -> BackendRun:
    from twinserve.sched_core.engine import EngineCore
    from twinserve.sim_backend.driver import simulate

    parts = build_simulation(experiment)
    engine = EngineCore(parts.scheduler, parts.policies)
    recorder = _recorder(experiment)
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationRangeWarning)
        try:
            record = simulate(
                engine,
                workload.traffic(),
                parts.cost_model,
                recorder,
                capture_sizes=parts.capture_sizes,
                output_lens=workload.output_lens,
                check=check,
                on_progress=on_progress,
            )
        except SIMULATION_ERRORS as cause:
            record, error = recorder.finish(0, engine.stats()), str(cause)
        except OverflowError as cause:
            raise RunError(_TOO_LONG, key="sim.cost_model") from cause
    notes = tuple(str(warning.message) for warning in caught)
    return BackendRun(record=record, blocks=parts.blocks, error=error, warnings=notes)


def _run_real(experiment: Experiment, workload: Workload, check: bool, on_progress: Progress | None) -> BackendRun:
    engine = experiment.config.engine
    with real_engine(experiment) as (backend, arguments):
        run = backend.run_experiment(
            **arguments,
            policies=engine_policies(engine, None),
            traffic=workload.traffic(),
            recorder=_recorder(experiment),
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
            make_policies=lambda: engine_policies(experiment.config.engine, None),
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


def _recorder(experiment: Experiment) -> Recorder:
    return Recorder(keep_plans=experiment.config.record.decisions)


def scheduler_config(engine: EngineSection, num_blocks: int) -> SchedulerConfig:
    """The scheduler's settings, once the size of its pool is known."""
    fields: dict[str, Any] = engine.scheduler_fields()
    return SchedulerConfig(num_blocks=num_blocks, **fields)


def _simulated_blocks(experiment: Experiment, source: CostModelConfig) -> Blocks:
    config = experiment.config
    if config.engine.num_gpu_blocks_override is not None:
        return Blocks(count=config.engine.num_gpu_blocks_override, source=BLOCKS_KEY)
    known = known_num_blocks(source, model=config.model, engine=config.engine, base_dir=experiment.base_dir)
    if known is None:
        message = f"is missing: a {source.kind} cost model does not know the memory; give the number of KV blocks"
        raise ConfigError(message, key=BLOCKS_KEY)
    return Blocks(count=known, source="measured" if source.kind == "calibration" else "derived from memory")


def engine_policies(engine: EngineSection, estimator: StepTimeEstimator | None) -> Policies:
    """The policies that ``engine`` names, fresh for one run; a real engine has no ``estimator``.

    Raises:
        ConfigError: a policy cannot be loaded or built.
    """
    try:
        return build_policies(
            policy=engine.policy,
            order=engine.order,
            victim=engine.victim,
            budget=engine.budget,
            admission=engine.admission,
            estimator=estimator,
        )
    except ValueError as error:
        raise ConfigError(str(error), key="engine") from error
    except Exception as error:  # a module or class of the user's may raise anything
        raise ConfigError(f"a policy cannot be built: {type(error).__name__}: {error}", key="engine") from error


def _estimator(cost_model: CostModel) -> StepTimeEstimator | None:
    """None where step times are a recording, which holds no others; never anything that changes the run."""
    if isinstance(cost_model, ReplayCostModel):
        return None
    return _Estimator(cost_model.without_memory() if isinstance(cost_model, CalibratedCostModel) else cost_model)


@dataclass(frozen=True, slots=True)
class _Estimator:
    """The cost model as the step-time estimator of a budget policy: a simulated engine knows its own speed."""

    cost_model: CostModel

    def seconds(self, features: StepFeatures) -> float:
        return self.cost_model.step_ns(features, 0) / 1e9
