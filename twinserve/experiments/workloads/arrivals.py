"""Arrival processes: unit gaps are divided by the rate and summed to an absolute schedule.

The gaps of one seed do not depend on the rate, so a sweep over rates is the same traffic played faster.
"""

from __future__ import annotations

from math import inf
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.schema import PositiveFloat, Section
from twinserve.experiments.workloads.fields import PositiveOrInf
from twinserve.sched_core.plan import Ints
from twinserve.sim_backend.arrays import Floats

NS_PER_S = 1e9
MAX_SECONDS = 9e9
"""Nanoseconds of longer times do not fit 63 bits."""


class _Renewal(Section):
    """Independent gaps at a constant rate or along a ramp (vLLM's option names).

    ``request_rate`` (requests/s) may be ``inf``: all at time 0. A ramp goes from ``ramp_up_start_rps`` to
    ``ramp_up_end_rps`` over the requests instead. ``normalize`` stretches the schedule so that it is exactly as long
    as expected (as vLLM does; the process is then no longer Poisson). ``first_at_zero`` drops the gap before the
    first request.
    """

    request_rate: PositiveOrInf | None = None
    ramp_up_strategy: Literal["linear", "exponential"] | None = None
    ramp_up_start_rps: PositiveFloat | None = None
    ramp_up_end_rps: PositiveFloat | None = None
    normalize: bool = False
    first_at_zero: bool = False

    @model_validator(mode="after")
    def _rate_or_ramp(self) -> Self:
        ramp = (self.ramp_up_strategy, self.ramp_up_start_rps, self.ramp_up_end_rps)
        if (self.request_rate is None) == (ramp == (None, None, None)):
            raise ValueError("give either request_rate or the ramp_up_* keys")
        if self.request_rate is None and None in ramp:
            raise ValueError("a ramp needs ramp_up_strategy, ramp_up_start_rps and ramp_up_end_rps")
        return self

    def shape(self) -> float:
        """Burstiness b: gaps are gamma with shape b and mean 1; 1, the default, is Poisson, inf is constant."""
        return 1.0

    def rates(self, size: int) -> Floats:
        """Requests/s at which each of ``size`` gaps is played."""
        start, end = self.ramp_up_start_rps, self.ramp_up_end_rps
        if start is None or end is None:
            return np.full(size, self.request_rate, dtype=np.float64)
        progress = np.linspace(0.0, 1.0, size) if size > 1 else np.zeros(size)
        if self.ramp_up_strategy == "linear":
            return start + (end - start) * progress
        return np.asarray(start * (end / start) ** progress, dtype=np.float64)


class PoissonArrivals(_Renewal):
    """Exponential gaps."""

    process: Literal["poisson"]


class ConstantArrivals(_Renewal):
    """Equal gaps."""

    process: Literal["constant"]

    def shape(self) -> float:
        return inf


class GammaArrivals(_Renewal):
    """Gamma gaps, given vLLM's ``burstiness`` b or the coefficient of variation ``cv``, where b = 1 / cv**2.

    Burstiness below 1 is burstier than Poisson; ``burstiness: inf`` or ``cv: 0`` is constant.
    """

    process: Literal["gamma"]
    burstiness: PositiveOrInf | None = None
    cv: Annotated[float, Field(ge=0, le=100)] | None = None

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if (self.burstiness is None) == (self.cv is None):
            raise ValueError("give either burstiness or cv (burstiness = 1 / cv**2)")
        return self

    def shape(self) -> float:
        if self.burstiness is not None:
            return self.burstiness
        variance = self.cv**2 if self.cv else 0.0
        return 1 / variance if variance else inf


class AllAtOnce(Section):
    """Every request at time 0."""

    process: Literal["all_at_once"]


ArrivalConfig = Annotated[
    PoissonArrivals | ConstantArrivals | GammaArrivals | AllAtOnce, Field(discriminator="process")
]


def arrival_times_ns(config: ArrivalConfig, size: int, generator: np.random.Generator) -> Ints:
    """Arrival times of ``size`` requests, ascending, shape ``(size,)``, rounded once from the absolute schedule."""
    if isinstance(config, AllAtOnce):
        return np.zeros(size, dtype=np.int64)
    gaps = _unit_gaps(config.shape(), size, generator)
    with np.errstate(all="ignore"):  # a rate next to 0: to_ns refuses what comes of it
        mean_gaps = 1 / config.rates(size)
        if config.first_at_zero:
            gaps[0] = mean_gaps[0] = 0.0
        times = np.cumsum(gaps * mean_gaps)
        if config.normalize and times[-1] > 0:
            times *= mean_gaps.sum() / times[-1]
    return to_ns(times)


def to_ns(seconds: Floats) -> Ints:
    """Whole nanoseconds.

    Raises:
        ConfigError: the last time does not fit 63 bits (292 years).
    """
    if len(seconds) and not seconds.max() <= MAX_SECONDS:
        raise ConfigError(f"requests would arrive for {seconds.max():.3g} s; raise the request rate", key="workload")
    return np.rint(seconds * NS_PER_S).astype(np.int64)


def _unit_gaps(shape: float, size: int, generator: np.random.Generator) -> Floats:
    if shape == inf:
        return np.ones(size)
    return generator.exponential(size=size) if shape == 1 else generator.gamma(shape, 1 / shape, size)
