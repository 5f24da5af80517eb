"""The cost model as the step-time estimator of policies."""

from __future__ import annotations

from dataclasses import dataclass

from twinserve.sched_core.features import StepFeatures
from twinserve.sched_core.policies.interfaces import StepTimeEstimator
from twinserve.sim_backend.calibration.calibrated import (
    CalibratedCostModel,
)
from twinserve.sim_backend.cost_model import CostModel
from twinserve.sim_backend.replay import ReplayCostModel


def step_time_estimator(cost_model: CostModel) -> StepTimeEstimator | None:
    """None where step times are a recording, which holds no others; never anything that changes the run."""
    if isinstance(cost_model, ReplayCostModel):
        return None
    return _CostModelEstimator(
        cost_model.without_memory() if isinstance(cost_model, CalibratedCostModel) else cost_model
    )


@dataclass(frozen=True, slots=True)
class _CostModelEstimator:
    """The cost model as the step-time estimator of a budget policy: a simulated engine knows its own speed."""

    cost_model: CostModel

    def seconds(self, features: StepFeatures) -> float:
        return self.cost_model.step_ns(features, 0) / 1e9
