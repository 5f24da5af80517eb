"""Finds the values of a configuration that name files, and resolves relative ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from twinserve.experiments.files.probe import expanded, is_there

ALWAYS_A_PATH = "path"
PATH_OR_NAME = ("file", "run", "hardware")
"""Keys whose value may also be a name from the catalogue; a path ends in .yaml, or is there."""


def located(key: str, value: Any, base_dir: Path) -> Path | None:
    """The path that ``value`` of the key named ``key`` means, relative to ``base_dir``; None when it is no path."""
    if not isinstance(value, str) or key not in (ALWAYS_A_PATH, *PATH_OR_NAME):
        return None
    path = base_dir / expanded(value, key)
    is_path = key == ALWAYS_A_PATH or path.suffix in (".yaml", ".yml") or is_there(path)
    return path if is_path else None


def map_paths(data: Any, base_dir: Path, change: Callable[[Path], Any], key: str = "") -> Any:
    """A copy of ``data`` with every path replaced by what ``change`` makes of it."""
    if isinstance(data, Mapping):
        return {name: map_paths(value, base_dir, change, name) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [map_paths(value, base_dir, change, key) for value in data]
    path = located(key, data, base_dir)
    return data if path is None else change(path)
