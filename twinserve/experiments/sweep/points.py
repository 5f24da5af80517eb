"""Reads a sweep file and makes one valid experiment per point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinserve.experiments.config.load import Experiment, experiment_of, validate
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.overrides import Override, apply_overrides
from twinserve.experiments.settings.paths import find_config
from twinserve.experiments.settings.yaml_loader import read_yaml
from twinserve.experiments.sweep.sweep_config import Settings, SweepConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One experiment of a sweep; ``settings`` has a value for every swept key, its own or the base's."""

    settings: Mapping[str, Any]
    experiment: Experiment

    def label(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.settings.items()) or "the base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A sweep file whose every point is valid."""

    name: str
    config: SweepConfig
    swept: tuple[str, ...]
    points: tuple[Point, ...]


def load_sweep(name: str, overrides: Sequence[Override] = (), own: Sequence[Override] = ()) -> Sweep:
    """Read a sweep; ``overrides`` change its base, and its points win over them. ``own`` change the sweep itself.

    Raises:
        ConfigError: the file, its base or one of its points is wrong.
    """
    path = find_config(name)
    return sweep_of(read_yaml(path), overrides, own, source=str(path), base_dir=path.parent, name=path.stem)


def sweep_of(
    data: Mapping[str, Any],
    overrides: Sequence[Override] = (),
    own: Sequence[Override] = (),
    *,
    source: str,
    base_dir: Path,
    name: str = "sweep",
) -> Sweep:
    """As ``load_sweep`` for data that was read before; ``name`` is for a sweep that has none."""
    if "base" not in data:
        message = "is missing; a sweep varies an experiment (`twinserve run` runs one)"
        raise ConfigError(message, file=source, key="base")
    config = validate(SweepConfig, apply_overrides(data, own), source=source, overrides=own)
    base, base_source, folder = _read_base(config, source, base_dir)
    experiments = [
        experiment_of(base, [*overrides, *_as_overrides(settings, source)], source=base_source, base_dir=folder)
        for settings in config.points()
    ]
    if not experiments:
        raise ConfigError("leaves no point to run; give matrix, zip or include, and exclude less", file=source)
    swept = tuple(config.swept())
    points = tuple(Point(settings=_settings(experiment, swept), experiment=experiment) for experiment in experiments)
    return Sweep(name=config.name or name, config=config, swept=swept, points=points)


def _read_base(config: SweepConfig, source: str, base_dir: Path) -> tuple[dict[str, Any], str, Path]:
    """(data, what it is called in errors, folder of its relative paths) of the base experiment."""
    if isinstance(config.base, dict):
        return config.base, f"{source}: base", base_dir
    beside = (base_dir / config.base).resolve()
    try:
        base = beside if beside.is_file() else find_config(config.base)
    except ConfigError as error:
        raise ConfigError(f"{config.base} {error.message}", file=source, key="base") from None
    data = read_yaml(base)
    if "base" in data:
        raise ConfigError(f"{config.base} is itself a sweep; name an experiment", file=source, key="base")
    return data, str(base), base.parent


def _as_overrides(settings: Settings, sweep: str) -> list[Override]:
    shown = ", ".join(f"{key}={value}" for key, value in settings.items())
    source = f"{sweep} (point {shown})"
    return [Override(key=key, value=value, source=source) for key, value in settings.items()]


def _settings(experiment: Experiment, swept: Sequence[str]) -> dict[str, Any]:
    data = experiment.config.model_dump()
    return {key: _value_at(data, key) for key in swept}


def _value_at(data: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data
