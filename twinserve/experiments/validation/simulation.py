"""The simulator on a recorded run: its workload, policies, KV blocks and graphs, with a clock of one's choice."""

from __future__ import annotations

from dataclasses import dataclass

from twinserve.experiments.backends.scheduler import engine_policies, scheduler_config
from twinserve.experiments.backends.simulated import SIMULATION_ERRORS
from twinserve.experiments.validation.recorded import RecordedRun
from twinserve.experiments.workloads import Workload
from twinserve.run_core.record import Recorder, RunRecord
from twinserve.sched_core.engine import EngineCore
from twinserve.sim_backend.cost_model import CostModel
from twinserve.sim_backend.driver import TokenSource, simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """What happened; ``error`` says why it stopped early, else None."""

    record: RunRecord
    error: str | None = None


def simulate_again(
    run: RecordedRun,
    cost_model: CostModel,
    *,
    token_source: TokenSource | None = None,
    workload: Workload | None = None,
    num_blocks: int | None = None,
    keep_plans: bool = False,
) -> Simulated:
    """Simulate ``run``, or another ``workload`` or pool in its place.

    Policies get the step-time estimator of the recorded configuration, as in the real run. Ids are made up without a
    ``token_source``. ``keep_plans`` keeps the decision log.
    """
    config, workload = run.config.engine, workload or run.workload
    engine = EngineCore(scheduler_config(config, num_blocks or run.num_blocks), engine_policies(run.experiment))
    recorder = Recorder(keep_plans=keep_plans)
    try:
        record = simulate(
            engine,
            workload.traffic(),
            cost_model,
            recorder,
            capture_sizes=run.capture_sizes,
            output_lens=workload.output_lens,
            token_source=token_source,
        )
    except SIMULATION_ERRORS as error:
        return Simulated(record=recorder.finish(0, engine.stats()), error=str(error))
    return Simulated(record=record)
