"""Published and simulated figures of one run, with their errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any

from twinserve.experiments.metrics import MetricsConfig, compute_metrics
from twinserve.run_core.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Published and simulated figures of one run, by name."""

    run: str
    published: Mapping[str, float]
    simulated: Mapping[str, float]

    def log_error(self, figure: str) -> float:
        """ln(simulated / published): near the relative error, and the same size for twice and for half."""
        return log(self.simulated[figure] / self.published[figure])

    @property
    def mean_abs_log_error(self) -> float:
        return sum(abs(self.log_error(figure)) for figure in self.published) / len(self.published)

    @property
    def largest_error(self) -> float:
        """The largest relative error of any figure, as a fraction."""
        return max(abs(self.simulated[figure] / value - 1) for figure, value in self.published.items())


def compare(run: str, published: Mapping[str, float], record: RunRecord) -> Comparison:
    """The figures of ``record`` that were published."""
    metrics: dict[str, Any] = compute_metrics(record, MetricsConfig(percentiles=(50, 90, 99)))
    return Comparison(run=run, published=published, simulated={figure: metrics[figure] for figure in published})
