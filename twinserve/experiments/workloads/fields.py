"""Field types of workload sections, and the input files that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.probe import is_file, is_folder
from twinserve.experiments.settings.paths import resolve


def _positive(value: float) -> float:
    if not value > 0:
        raise ValueError(f"got {value}; should be greater than 0, or inf")
    return value


NonNegativeFloat = Annotated[float, Field(ge=0, le=1e12)]
PositiveOrInf = Annotated[float, Field(allow_inf_nan=True), AfterValidator(_positive)]


def require_file(path: str, base_dir: Path, key: str) -> Path:
    """``resolve`` for an input file that must exist.

    Raises:
        ConfigError: naming ``key`` when there is no such file.
    """
    found = resolve(path, base_dir)
    if not is_file(found):
        what = "is a folder" if is_folder(found) else "does not exist"
        raise ConfigError(f"{found} {what}; give an existing file, for example with --set {key}=FILE", key=key)
    return found
