"""Simulates a recorded run with its own workload, policies, KV blocks and graphs, on any cost model."""

from __future__ import annotations

from twinserve.experiments.backends.scheduler import engine_policies, scheduler_config
from twinserve.experiments.validation.recorded import RecordedRun
from twinserve.experiments.workloads import Workload
from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.record import Recorder
from twinserve.run_core.session import Session
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.errors import RunStopped
from twinserve.sim_backend.cost_model import CostModel
from twinserve.sim_backend.driver import TokenSource, simulate


def simulate_again(
    run: RecordedRun,
    cost_model: CostModel,
    *,
    token_source: TokenSource | None = None,
    workload: Workload | None = None,
    num_blocks: int | None = None,
    keep_plans: bool = False,
) -> RunOutcome:
    """Simulate ``run``, or another ``workload`` or pool in its place.

    Policies get the step-time estimator of the recorded configuration, as in the real run. Ids are made up without a
    ``token_source``. ``keep_plans`` keeps the decision log.
    """
    config, workload = run.config.engine, workload or run.workload
    engine = EngineCore(scheduler_config(config, num_blocks or run.num_blocks), engine_policies(run.experiment))
    session = Session(
        engine,
        workload.traffic(),
        Recorder(keep_plans=keep_plans),
        capture_sizes=run.capture_sizes,
        output_lens=workload.output_lens,
    )
    outcome = simulate(session, cost_model, token_source=token_source)
    if outcome.error is not None and not isinstance(outcome.error, RunStopped):
        raise outcome.error
    return outcome
