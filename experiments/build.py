"""From a configuration to running objects; the one place that reaches for a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from experiments.cost_models import build_cost_model, known_capture_sizes, known_num_blocks
from experiments.engine_config import EngineSection
from experiments.errors import ConfigError, RunError
from experiments.load import Experiment
from experiments.workloads import Workload, build_workload
from sched_core.config import SchedulerConfig
from sched_core.dispatch import NO_GRAPHS, CaptureSizes
from sched_core.features import StepFeatures
from sched_core.policies.registry import Policies, build_policies
from sched_core.record import Recorder, RunRecord
from sim_backend.cost_model import CostModel

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """How many KV blocks an engine has, and who said so."""

    count: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRun:
    """What a backend returns: the record, the pool it ran with, and facts for the manifest."""

    record: RunRecord
    blocks: Blocks
    facts: Mapping[str, Any] = field(default_factory=dict)


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
        raise ConfigError("is missing; add sim.cost_model, or use --backend real", file=experiment.source, key="sim")
    source = config.sim.cost_model
    cost_model = build_cost_model(source, model=config.model, base_dir=experiment.base_dir)
    blocks = _simulated_blocks(experiment)
    return Simulation(
        scheduler=_scheduler_config(config.engine, blocks.count),
        policies=_policies(experiment, None if source.kind == "replay" else _Estimator(cost_model)),
        cost_model=cost_model,
        capture_sizes=_capture_sizes(config.engine, known_capture_sizes(source, base_dir=experiment.base_dir)),
        blocks=blocks,
    )


def run_backend(experiment: Experiment, workload: Workload, *, check: bool, on_progress: Progress | None) -> BackendRun:
    """Run the workload on the backend that the configuration names.

    Raises:
        ConfigError: something the backend needs is missing or wrong.
        RunError: the run began and could not go on.
    """
    run = _run_real if experiment.config.backend == "real" else _run_simulated
    return run(experiment, workload, check, on_progress)


def _run_simulated(experiment: Experiment, workload: Workload, check: bool, on_progress: Progress | None) -> BackendRun:
    from sched_core.engine import EngineCore
    from sched_core.errors import StuckError
    from sim_backend.driver import simulate

    parts = build_simulation(experiment)
    try:
        record = simulate(
            EngineCore(parts.scheduler, parts.policies),
            workload.traffic(),
            parts.cost_model,
            _recorder(experiment),
            capture_sizes=parts.capture_sizes,
            output_lens=workload.output_lens,
            check=check,
            on_progress=on_progress,
        )
    except (StuckError, ValueError) as error:
        raise RunError(str(error), file=experiment.source) from error
    return BackendRun(record=record, blocks=parts.blocks)


def _run_real(experiment: Experiment, workload: Workload, check: bool, on_progress: Progress | None) -> BackendRun:
    backend = _real_backend(experiment)
    config = experiment.config
    run = backend.run_experiment(
        model=config.model.model_dump(),
        scheduler=config.engine.scheduler_fields(),
        policies=_policies(experiment, None),
        traffic=workload.traffic(),
        recorder=_recorder(experiment),
        real=config.real.model_dump(),
        enforce_eager=config.engine.enforce_eager,
        num_gpu_blocks_override=config.engine.num_gpu_blocks_override,
        gpu_memory_utilization=config.engine.gpu_memory_utilization,
        output_lens=workload.output_lens,
        seed=config.seed,
        check=check,
        on_progress=on_progress,
    )
    return BackendRun(record=run.record, blocks=Blocks(count=run.num_blocks, source="device"), facts=run.manifest)


def _real_backend(experiment: Experiment) -> Any:
    try:
        import real_backend.build as backend
    except ImportError as error:
        message = f"the real backend cannot start ({error}); pip install 'twinserve[real]', or use --backend sim"
        raise ConfigError(message, file=experiment.source, key="backend") from error
    return backend


def _recorder(experiment: Experiment) -> Recorder:
    return Recorder(keep_plans=experiment.config.record.decisions)


def _scheduler_config(engine: EngineSection, num_blocks: int) -> SchedulerConfig:
    fields: dict[str, Any] = engine.scheduler_fields()
    return SchedulerConfig(num_blocks=num_blocks, **fields)


def _simulated_blocks(experiment: Experiment) -> Blocks:
    config = experiment.config
    if config.engine.num_gpu_blocks_override is not None:
        return Blocks(count=config.engine.num_gpu_blocks_override, source="engine.num_gpu_blocks_override")
    assert config.sim is not None  # an internal invariant: a simulation has been asked for
    source = config.sim.cost_model
    known = known_num_blocks(source, model=config.model, engine=config.engine, base_dir=experiment.base_dir)
    if known is None:
        message = f"is missing: a {source.kind} cost model does not know the memory; give the number of KV blocks"
        raise ConfigError(message, file=experiment.source, key="engine.num_gpu_blocks_override")
    return Blocks(count=known, source="measured" if source.kind == "calibration" else "derived from memory")


def _policies(experiment: Experiment, estimator: _Estimator | None) -> Policies:
    engine = experiment.config.engine
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
        raise ConfigError(str(error), file=experiment.source, key="engine") from error


def _capture_sizes(engine: EngineSection, known: CaptureSizes) -> CaptureSizes:
    """The graphs of the engine that is simulated: none when eager, those asked for, or the calibrated engine's."""
    if engine.enforce_eager:
        return NO_GRAPHS
    sizes = engine.cuda_graph_sizes
    return known if sizes is None else CaptureSizes(decode=sizes.decode, mixed=sizes.mixed)


@dataclass(frozen=True, slots=True)
class _Estimator:
    """The cost model as the step-time estimator of a budget policy: a simulated engine knows its own speed."""

    cost_model: CostModel

    def seconds(self, features: StepFeatures) -> float:
        return self.cost_model.step_ns(features, 0) / 1e9
