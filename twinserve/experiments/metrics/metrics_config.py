"""The ``metrics:`` section of an experiment."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from twinserve.experiments.settings.schema import FromList, NonNegativeInt, Seconds, Section, Seed

Milliseconds = Annotated[float, Field(ge=0)]
Percentile = Annotated[float, Field(gt=0, lt=100)]


def _ascending_and_distinct(percentiles: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted(set(percentiles)))


class SloConfig(Section):
    """Limits that a request must meet, all of those given, to count as good."""

    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None
    e2el_ms: Milliseconds | None = None


class BootstrapConfig(Section):
    """Confidence intervals of the percentiles; ``samples`` resamplings of whole requests serve the pooled ITL."""

    samples: Annotated[int, Field(ge=10)] = 1000
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    seed: Seed = 0


class MetricsConfig(Section):
    """The percentiles, goals and measured requests of a run.

    A request is measured when its scheduled arrival is neither among the first ``warmup_requests`` arrivals, nor
    earlier than ``warmup_time_s`` after the run's start, nor within the last ``cooldown_time_s`` before the last
    scheduled arrival. ``slo`` None reports no goodput, ``bootstrap`` None no confidence intervals.
    """

    percentiles: Annotated[tuple[Percentile, ...], FromList, AfterValidator(_ascending_and_distinct)] = (50, 90, 95, 99)
    slo: SloConfig | None = None
    warmup_requests: NonNegativeInt = 0
    warmup_time_s: Seconds = 0.0
    cooldown_time_s: Seconds = 0.0
    bootstrap: BootstrapConfig | None = None
