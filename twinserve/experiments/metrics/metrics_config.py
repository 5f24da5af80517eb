"""The ``metrics:`` section of an experiment."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from twinserve.experiments.settings.plain_numbers import decimal_number
from twinserve.experiments.settings.schema import FromList, NonNegativeInt, Seconds, Section, Seed

Milliseconds = Annotated[float, Field(ge=0)]


def _in_percent(percentile: float) -> float:
    if percentile < 1:
        raise ValueError(f"got {percentile:g}; percentiles are in percent: write {100 * percentile:g}, or 1 or more")
    return percentile


def _numbers(value: Any) -> Any:
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, str) and decimal_number(item) is None for item in items) or isinstance(value, str):
        raise ValueError(f"got {str(value)[:40]!r}; should be a list of numbers such as [50, 99]")
    return value


Percentile = Annotated[float, Field(gt=0, lt=100), AfterValidator(_in_percent)]
Share = Annotated[float, Field(ge=0, lt=1)]


def _ascending_and_distinct(percentiles: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted(set(percentiles)))


class SloConfig(Section):
    """Limits that a request must meet, all of those given, to count as good; ``itl_ms`` is of its longest gap."""

    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None
    itl_ms: Milliseconds | None = None
    e2el_ms: Milliseconds | None = None


class BootstrapConfig(Section):
    """Confidence intervals of the percentiles; ``samples`` resamplings of whole requests serve the pooled ITL."""

    samples: Annotated[int, Field(ge=10)] = 1000
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    seed: Seed = 0


class MetricsConfig(Section):
    """The percentiles, goals and measured requests of a run.

    By position: a request is measured when, in order of scheduled arrival, it is neither among the first
    ``warmup_requests`` (or that ``warmup_share`` of all) nor among the last ``cooldown_requests`` (or that
    ``cooldown_share``). By time: nor when it was sent less than ``warmup_time_s`` after the first sending, or in the
    ``cooldown_time_s`` before the last. ``slo`` None reports no goodput, ``bootstrap`` None no confidence intervals.
    """

    percentiles: Annotated[
        tuple[Percentile, ...], FromList, BeforeValidator(_numbers), AfterValidator(_ascending_and_distinct)
    ] = (50, 90, 95, 99)
    slo: SloConfig | None = None
    warmup_requests: NonNegativeInt = 0
    warmup_share: Share = 0.0
    warmup_time_s: Seconds = 0.0
    cooldown_requests: NonNegativeInt = 0
    cooldown_share: Share = 0.0
    cooldown_time_s: Seconds = 0.0
    bootstrap: BootstrapConfig | None = None
