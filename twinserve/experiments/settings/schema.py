"""The base of every YAML section: strict types, no unknown keys, frozen after reading."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Section(BaseModel):
    """Base of every section: unknown keys, silent conversions, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


MAX_COUNT = 1 << 40
"""Far above any real count; products of two such numbers are not formed, sums of many fit 63 bits."""

PositiveFloat = Annotated[float, Field(gt=0, le=1e12)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
PositiveInt = Annotated[int, Field(ge=1, le=MAX_COUNT)]
NonNegativeInt = Annotated[int, Field(ge=0, le=MAX_COUNT)]
RequestCount = Annotated[int, Field(ge=1, le=100_000_000)]
"""As many requests as can be made up: each takes some hundred bytes."""
Seconds = Annotated[float, Field(ge=0, le=1e8)]
"""Up to three years: in nanoseconds, and multiplied by what random numbers there are, they fit 63 bits."""
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
FromList = BeforeValidator(_listed)
"""Marks a tuple field, which YAML writes as a list: ``Annotated[tuple[int, ...], FromList]``."""

Term = Annotated[float, Field(le=1e9)]
"""A step of 1e9 ms is eleven days; nanoseconds of many such steps fit 63 bits."""
Knot = Annotated[tuple[Term, Term], FromList]
"""(tokens, ms) of a piecewise-linear step time."""
