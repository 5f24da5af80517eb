"""Checked facts from a manifest: the engine behind a run or profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from twinserve.experiments.config.engine import CudaGraphSizes
from twinserve.experiments.errors import ConfigError
from twinserve.sched_core.dispatch import CaptureSizes


def manifest_text(manifest: Mapping[str, Any], name: str, path: Path) -> str:
    """The text under ``name`` in the manifest at ``path``.

    Raises:
        ConfigError: there is none.
    """
    value = manifest.get(name)
    if not isinstance(value, str):
        raise _wrong(value, "text", name, path)
    return value


def manifest_count(manifest: Mapping[str, Any], name: str, path: Path) -> int:
    """The whole number of at least 1 under ``name``.

    Raises:
        ConfigError: there is none.
    """
    value = manifest.get(name)
    if type(value) is not int or value < 1:
        raise _wrong(value, "a whole number of at least 1", name, path)
    return value


def manifest_capture_sizes(manifest: Mapping[str, Any], path: Path) -> CaptureSizes:
    """The engine's CUDA graphs.

    Raises:
        ConfigError: there are none, or they are no ascending token counts.
    """
    value = manifest.get("capture_sizes")
    try:
        sizes = CudaGraphSizes.model_validate(value)
    except ValidationError:
        raise _wrong(value, "ascending token counts under decode and mixed", "capture_sizes", path) from None
    return CaptureSizes(decode=sizes.decode, mixed=sizes.mixed)


def _wrong(value: object, right: str, name: str, path: Path) -> ConfigError:
    if value is None:
        return ConfigError("is missing: was the run or profile finished on a GPU engine?", file=path, key=name)
    return ConfigError(f"is {value!r}; should be {right}", file=path, key=name)
