"""The scheduler of an experiment: its settings and its policies."""

from __future__ import annotations

from typing import Any

from twinserve.experiments.config.engine import EngineSection
from twinserve.experiments.errors import ConfigError
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.policies.interfaces import StepTimeEstimator
from twinserve.sched_core.policies.registry import Policies, build_policies


def scheduler_config(engine: EngineSection, num_blocks: int) -> SchedulerConfig:
    """The scheduler's settings, once the size of its pool is known."""
    fields: dict[str, Any] = engine.scheduler_fields()
    return SchedulerConfig(num_blocks=num_blocks, **fields)


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
