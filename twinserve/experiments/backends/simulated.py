"""An experiment in the simulator."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from twinserve.experiments.backends.backend_run import BLOCKS_KEY, BackendRun, Blocks
from twinserve.experiments.backends.scheduler import engine_policies, scheduler_config
from twinserve.experiments.config.cost_model import CostModelConfig, build_cost_model, known_num_blocks
from twinserve.experiments.config.graph_sizes import simulated_capture_sizes
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import ConfigError, RunError
from twinserve.experiments.workloads import Workload
from twinserve.run_core.record import Recorder
from twinserve.run_core.session import ProgressListener, Session
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.dispatch import CaptureSizes
from twinserve.sched_core.policies.registry import Policies
from twinserve.sim_backend.calibration.calibrated import (
    CalibrationRangeWarning,
)
from twinserve.sim_backend.cost_model import CostModel

_TOO_LONG = "the simulated time does not fit 63 bits of nanoseconds (292 years); lower the step times of sim.cost_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """All that a simulated run needs besides its traffic; fresh for one run, since policies and models hold state."""

    scheduler: SchedulerConfig
    policies: Policies
    cost_model: CostModel
    capture_sizes: CaptureSizes
    blocks: Blocks


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
        policies=engine_policies(experiment),
        cost_model=cost_model,
        capture_sizes=simulated_capture_sizes(config, experiment.base_dir),
        blocks=blocks,
    )


def run_simulated(
    experiment: Experiment, workload: Workload, check: bool, on_progress: ProgressListener | None
) -> BackendRun:
    from twinserve.sched_core.engine import EngineCore
    from twinserve.sim_backend.driver import simulate

    parts = build_simulation(experiment)
    session = Session(
        EngineCore(parts.scheduler, parts.policies),
        workload.traffic(),
        Recorder(keep_plans=experiment.config.record.decisions),
        capture_sizes=parts.capture_sizes,
        output_lens=workload.output_lens,
        check=check,
        on_progress=on_progress,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationRangeWarning)
        try:
            outcome = simulate(session, parts.cost_model)
        except OverflowError as cause:  # the record cannot hold such times
            raise RunError(_TOO_LONG, key="sim.cost_model") from cause
    notes = tuple(str(warning.message) for warning in caught)
    return BackendRun.of(outcome, parts.blocks, warnings=notes)


def _simulated_blocks(experiment: Experiment, source: CostModelConfig) -> Blocks:
    config = experiment.config
    if config.engine.num_gpu_blocks_override is not None:
        return Blocks(count=config.engine.num_gpu_blocks_override, source=BLOCKS_KEY)
    known = known_num_blocks(source, model=config.model, engine=config.engine, base_dir=experiment.base_dir)
    if known is None:
        message = f"is missing: a {source.kind} cost model does not know the memory; give the number of KV blocks"
        raise ConfigError(message, key=BLOCKS_KEY)
    return Blocks(count=known, source="measured" if source.kind == "calibration" else "derived from memory")
