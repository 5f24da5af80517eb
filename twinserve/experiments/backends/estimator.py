"""The configured cost model as the step-time estimator of policies."""

from __future__ import annotations

from dataclasses import dataclass

from twinserve.experiments.config.cost_model import build_cost_model
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import ConfigError
from twinserve.sched_core.features import StepFeatures
from twinserve.sched_core.policies.interfaces import StepTimeEstimator
from twinserve.sim_backend.calibration.calibrated import CalibratedCostModel
from twinserve.sim_backend.cost_model import CostModel

_REMEDY = "give sim.cost_model the kind calibration, roofline or linear"


def configured_estimator(experiment: Experiment, seam: str) -> StepTimeEstimator:
    """Step times of the ``sim`` section, for the policy of ``seam``; asking never changes the run.

    Raises:
        ConfigError: there is no ``sim`` section, it replays a recording (which holds no other step times), or a file
            that it names is missing or wrong.
    """
    sim, key = experiment.config.sim, f"engine.{seam}"
    if sim is None:
        raise ConfigError(f"takes a step-time estimator, and there is no `sim:` section; {_REMEDY}", key=key)
    if sim.cost_model.kind == "replay":
        raise ConfigError(f"takes a step-time estimator, and a replay predicts no step times; {_REMEDY}", key=key)
    cost_model = build_cost_model(sim.cost_model, model=experiment.config.model, base_dir=experiment.base_dir)
    return _CostModelEstimator(
        cost_model.without_memory() if isinstance(cost_model, CalibratedCostModel) else cost_model
    )


@dataclass(frozen=True, slots=True)
class _CostModelEstimator:
    cost_model: CostModel

    def seconds(self, features: StepFeatures) -> float:
        return self.cost_model.step_ns(features, 0) / 1e9
