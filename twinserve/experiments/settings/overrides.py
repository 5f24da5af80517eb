"""Overrides of configuration values: ``--set a.b=c`` and the points of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinserve.experiments.errors import ConfigError, one_line, shown
from twinserve.experiments.files.probe import expanded
from twinserve.experiments.settings.yaml_loader import parse_yaml

_MAX_SOURCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """``value`` for the dotted ``key``; ``source`` names where it came from in errors."""

    key: str
    value: Any
    source: str

    def covers(self, key: str) -> bool:
        """Whether ``key`` is what this override set, or lies inside it."""
        return f"{key}.".startswith(f"{self.key}.")

    def is_inside(self, key: str) -> bool:
        """Whether this override set something inside the section ``key`` ("" is the whole file)."""
        return not key or self.key.startswith(f"{key}.")


def parse_override(text: str) -> Override:
    """``a.b=value``, the value as in YAML (``null``, ``true``, ``[1, 2]``, ``{kind: fixed, value: 8}``, ``inf``).

    A relative path in a key named ``path`` is relative to the current folder, as everywhere on a command line; in a
    YAML file it is relative to that file.
    """
    source = f"--set {one_line(text, _MAX_SOURCE)}"
    key, equals, value_text = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise ConfigError("not of the form KEY=VALUE; write for example --set engine.max_num_seqs=32", file=source)
    return override_of(key, parse_yaml(value_text, source=source), source=source)


def override_of(key: str, value: Any, *, source: str) -> Override:
    """``value`` for ``key``, as ``parse_override`` means it."""
    if key.rpartition(".")[2] == "path" and isinstance(value, str):
        value = str(Path.cwd() / expanded(value, key))
    return Override(key=key, value=value, source=source)


def apply_overrides(data: Mapping[str, Any], overrides: Iterable[Override]) -> dict[str, Any]:
    """A copy of ``data`` with the overrides put in, later ones winning; ``data`` itself is left as it is."""
    result = dict(data)
    for override in overrides:
        _set(result, override.key.split("."), override)
    return result


def _set(section: dict[str, Any], path: list[str], override: Override) -> None:
    *parents, name = path
    for depth, parent in enumerate(parents, start=1):
        below = section.get(parent)
        if below is not None and not isinstance(below, Mapping):
            raise ConfigError(
                f"{'.'.join(parents[:depth])} is {shown(below)}, which has no keys inside; "
                f"{_remedy(parent, below, name)}",
                file=override.source,
                key=override.key,
            )
        section[parent] = dict(below or {})
        section = section[parent]
    section[name] = override.value


def _remedy(parent: str, value: Any, name: str) -> str:
    """A name can stand for a mapping that has it under ``use``."""
    mapping = (
        f", or write {parent}: {{use: {one_line(str(value), _MAX_SOURCE)}, {name}: ...}} for a policy with parameters"
    )
    return "set a key of a section" + (mapping if isinstance(value, str) else "")
