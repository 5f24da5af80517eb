"""The scheduler of an experiment: its settings and its policies."""

from __future__ import annotations

from typing import Any

from twinserve.experiments.backends.estimator import configured_estimator
from twinserve.experiments.config.engine import EngineSection
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.config.policies import policy_errors
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.policies.registry import Policies, build_policies, seams_with_estimator


def scheduler_config(engine: EngineSection, num_blocks: int) -> SchedulerConfig:
    """The scheduler's settings, once the size of its pool is known."""
    fields: dict[str, Any] = engine.scheduler_fields()
    return SchedulerConfig(num_blocks=num_blocks, **fields)


def engine_policies(experiment: Experiment) -> Policies:
    """The policies of ``experiment``, fresh for one run.

    Those that take a step-time estimator get that of ``sim.cost_model``, on either backend and in every replay.

    Raises:
        ConfigError: a policy cannot be loaded or built, or takes an estimator where there is none.
    """
    choices = experiment.policy_choices()
    with policy_errors():
        asking = seams_with_estimator(choices)
        estimator = configured_estimator(experiment, asking[0]) if asking else None
        return build_policies(estimator=estimator, **choices)
