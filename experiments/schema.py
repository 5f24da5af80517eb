"""What every section of the YAML has in common: strict types, no unknown keys, no change after reading."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Section(BaseModel):
    """Base of every section: unknown keys, silent conversions, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _listed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


PositiveFloat = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
FromList = BeforeValidator(_listed)
"""Marks a tuple field, which YAML writes as a list: ``Annotated[tuple[int, ...], FromList]``."""
