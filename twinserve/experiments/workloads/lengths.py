"""Distributions of prompt, output and conversation lengths."""

from __future__ import annotations

from math import log, log1p, sqrt
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.schema import MAX_COUNT, PositiveInt, Section
from twinserve.experiments.workloads.fields import NonNegativeFloat, require_file
from twinserve.experiments.workloads.formats.reading import read_csv, token_count
from twinserve.experiments.workloads.streams import weighted_choice
from twinserve.sched_core.plan import Ints

MeanLength = Annotated[float, Field(ge=1e-3, le=MAX_COUNT)]


class FixedLength(Section):
    """Always ``value``."""

    dist: Literal["fixed"]
    value: PositiveInt

    def draw(self, size: int, generator: np.random.Generator) -> Ints:  # noqa: ARG002 - the one constant length
        return np.full(size, self.value, dtype=np.int64)


class _Bounded(Section):
    min: PositiveInt = 1
    max: PositiveInt | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}; swap them")
        return self

    def _check_mean(self, mean: float) -> None:
        if self.max is not None and mean > self.max:
            raise ValueError(f"mean {mean:g} is above max {self.max}: nearly all would be cut; raise max or lower mean")
        if mean < self.min and self.min > 1:
            raise ValueError(f"mean {mean:g} is below min {self.min}: nearly all would be raised; lower min")

    def _rounded(self, drawn: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ints:
        return np.rint(np.clip(drawn, self.min, self.max or MAX_COUNT)).astype(np.int64)


class UniformLength(_Bounded):
    """Integers from ``min`` to ``max``, both included."""

    dist: Literal["uniform"]
    min: PositiveInt
    max: PositiveInt

    def draw(self, size: int, generator: np.random.Generator) -> Ints:
        return generator.integers(self.min, self.max, size=size, endpoint=True)


class NormalLength(_Bounded):
    """Normal with ``mean`` and ``std``, rounded; values outside ``[min, max]`` are moved to the nearer end."""

    dist: Literal["normal"]
    mean: MeanLength
    std: NonNegativeFloat

    @model_validator(mode="after")
    def _mean_is_within(self) -> Self:
        self._check_mean(self.mean)
        return self

    def draw(self, size: int, generator: np.random.Generator) -> Ints:
        return self._rounded(generator.normal(self.mean, self.std, size))


class LognormalLength(_Bounded):
    """Log-normal whose values (not their logarithms) have ``mean`` and ``std``; rounded and bounded as ``normal``."""

    dist: Literal["lognormal"]
    mean: MeanLength
    std: NonNegativeFloat

    @model_validator(mode="after")
    def _mean_is_within(self) -> Self:
        self._check_mean(self.mean)
        return self

    def draw(self, size: int, generator: np.random.Generator) -> Ints:
        variance = log1p((self.std / self.mean) ** 2)
        return self._rounded(generator.lognormal(log(self.mean) - variance / 2, sqrt(variance), size))


class ZipfLength(_Bounded):
    """``min + k`` with probability proportional to ``(k + 1) ** -theta``, up to ``max``: short ones are common."""

    dist: Literal["zipf"]
    min: PositiveInt
    max: Annotated[int, Field(ge=1, le=1 << 24)]
    theta: NonNegativeFloat = 0.6

    def draw(self, size: int, generator: np.random.Generator) -> Ints:
        ranks = np.arange(1, self.max - self.min + 2, dtype=np.float64)
        return self.min + weighted_choice(ranks**-self.theta, size, generator)


class EmpiricalLength(Section):
    """Drawn, with replacement, from ``column`` of a CSV file with a header."""

    dist: Literal["empirical"]
    path: str
    column: str

    def values(self, base_dir: Path, key: str) -> Ints:
        """The column (whole numbers >= 1).

        Raises:
            ConfigError: no such file or column, or a bad line.
        """
        table = read_csv(require_file(self.path, base_dir, f"{key}.path"), {self.column: token_count})
        values = np.array(table.columns[self.column], dtype=np.int64)
        if values.min() < 1:
            line = table.lines[int(values.argmin())]
            raise ConfigError(f"{self.column} is 0; remove the row", file=table.path, key=f"line {line}")
        return values


LengthConfig = Annotated[
    FixedLength | UniformLength | NormalLength | LognormalLength | ZipfLength | EmpiricalLength,
    Field(discriminator="dist"),
]


def draw_lengths(config: LengthConfig, size: int, generator: np.random.Generator, base_dir: Path, key: str) -> Ints:
    """``size`` lengths >= 1, shape ``(size,)``; ``key`` names the setting in errors."""
    if isinstance(config, EmpiricalLength):
        values = config.values(base_dir, key)
        return values[generator.integers(0, len(values), size=size)]
    return config.draw(size, generator)
