"""The interface of every cost model."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from twinserve.sched_core.features import StepFeatures


class CostModel(Protocol):
    """How long steps take. All times are integer nanoseconds of the run's clock."""

    def step_ns(self, features: StepFeatures, now: int) -> int:
        """Time from this step's start at ``now`` to the start of the next one (> 0), host work included."""

    def wake_ns(self, now: int) -> int:
        """When an idle engine notices what becomes due at ``now`` (>= ``now``); most models answer ``now``."""


@runtime_checkable
class SplitCostModel(CostModel, Protocol):
    """A cost model that knows which part of a step is the device's and which the host's."""

    def host_gap_ns(self, features: StepFeatures) -> float:
        """The part of ``step_ns`` in which the device is idle."""
