"""Configurations as a caller gives them: a path, a packaged name, a mapping, or one loaded before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

from twinserve.experiments.config.load import Experiment, experiment_of, load_experiment
from twinserve.experiments.settings.overrides import Override, override_of
from twinserve.experiments.settings.paths import packaged_experiments
from twinserve.sched_core.policies.choice import PolicyChoice

Config: TypeAlias = str | PathLike[str] | Mapping[str, Any] | Experiment
Settings: TypeAlias = Mapping[str, Any] | None
"""Dotted key -> value, as ``--set`` on the command line."""

MAPPING = "the given mapping"


def load_config(
    config: Config,
    *,
    set: Settings = None,
    backend: str | None = None,
    policies: Mapping[str, PolicyChoice] | None = None,
) -> Experiment:
    """A valid configuration; its fields are in ``.config``.

    ``config`` is a YAML file, the name of a packaged one, a mapping as YAML would give it (relative paths start from
    the current folder), or a configuration loaded before. ``set`` and ``backend`` replace values of it.
    ``policies`` replaces policies: seam (policy, order, victim, budget, admission) -> name, import path, class, or a
    mapping of ``use`` (one of these) and the policy's parameters.

    Raises:
        ConfigError: one line that names the file, the key and what would be right.
    """
    experiment = _load(config, overrides(set, backend))
    return experiment.with_policies(policies) if policies else experiment


def _load(config: Config, replaced: tuple[Override, ...]) -> Experiment:
    if isinstance(config, Experiment):
        data, source, base_dir = config.config.model_dump(), config.source, config.base_dir
        fresh = experiment_of(data, replaced, source=source, base_dir=base_dir) if replaced else config
        return replace(fresh, makers=config.makers)
    if isinstance(config, Mapping):
        return experiment_of(config, replaced, source=MAPPING, base_dir=Path.cwd())
    return load_experiment(fspath(config), replaced)


def list_configs() -> list[str]:
    """Names of the packaged experiments and sweeps."""
    return packaged_experiments()


def overrides(set: Settings = None, backend: str | None = None) -> tuple[Override, ...]:
    """What ``set`` and ``backend`` replace; ``backend`` wins over a key of ``set``."""
    found = [override_of(key, value, source=f"set {key}={value}") for key, value in (set or {}).items()]
    if backend is not None:
        found.append(Override(key="backend", value=backend, source=f"backend={backend}"))
    return tuple(found)
