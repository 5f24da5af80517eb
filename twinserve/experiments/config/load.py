"""From a YAML file and overrides to an ``Experiment``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from twinserve.experiments.config.experiment import ExperimentConfig
from twinserve.experiments.config.policies import Makers, chosen, named, names_of, with_makers
from twinserve.experiments.errors import ConfigError, shown
from twinserve.experiments.settings.explain import explain
from twinserve.experiments.settings.numeric_text import with_numbers
from twinserve.experiments.settings.overrides import Override, apply_overrides
from twinserve.experiments.settings.paths import find_config
from twinserve.experiments.settings.plain_data import check_plain
from twinserve.experiments.settings.yaml_loader import read_yaml
from twinserve.sched_core.policies.choice import PolicyChoice

SomeModel = TypeVar("SomeModel", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A valid configuration, where it came from, and the folder that its relative paths start from.

    ``makers`` are the classes of policies that were given as such, by seam; ``config`` has their names.
    """

    config: ExperimentConfig
    source: str
    base_dir: Path
    overrides: tuple[Override, ...] = ()
    makers: Makers = field(default_factory=dict)

    def with_policies(self, policies: Mapping[str, PolicyChoice]) -> Experiment:
        """This experiment with other policies: seam -> name, import path, class, or mapping of ``use`` and parameters.

        Raises:
            ConfigError: an unknown seam, or a choice that is none.
        """
        values, makers = named(policies)
        config = self.config.model_copy(update={"engine": self.config.engine.model_copy(update=values)})
        kept = {seam: maker for seam, maker in self.makers.items() if seam not in values}
        return replace(self, config=config, makers=kept | makers)

    def policy_choices(self) -> dict[str, PolicyChoice]:
        """Seam -> what makes its policy, for ``build_policies``."""
        return with_makers(chosen(self.config.engine), self.makers)

    def refuse_imports(self) -> None:
        """Nothing that the file alone names may be imported; overrides are the user's own word.

        Raises:
            ConfigError: naming the first policy that is an import path.
        """
        for seam, use in names_of(self.config.engine).items():
            key = f"engine.{seam}"
            if ":" in use and seam not in self.makers and not any(one.covers(key) for one in self.overrides):
                message = f"{shown(use)} is code to be imported; give --allow-imports if you trust this file"
                raise ConfigError(message, file=self.source, key=key)

    @contextmanager
    def errors_name_source(self) -> Iterator[None]:
        """Names the file, or the override, in errors that know the key only."""
        try:
            yield
        except ConfigError as error:
            if error.file is None:
                error.file = _source_of(error.key or "", self.source, self.overrides)
            raise


def load_experiment(name: str, overrides: Sequence[Override] = (), *, allow_imports: bool = True) -> Experiment:
    """Read a file (or packaged configuration) and put the overrides in.

    Without ``allow_imports`` a policy of the file's own is refused before any of its code is imported.

    Raises:
        ConfigError: one line that names the file (or the override), the key and what would be right.
    """
    path = find_config(name)
    data = read_yaml(path)
    if "base" in data:
        raise ConfigError("is a sweep; run it with `twinserve sweep`", file=path)
    experiment = experiment_of(data, overrides, source=str(path), base_dir=path.parent)
    if not allow_imports:
        experiment.refuse_imports()
    return experiment


def experiment_of(
    data: Mapping[str, Any], overrides: Sequence[Override] = (), *, source: str, base_dir: Path
) -> Experiment:
    """As ``load_experiment`` for data that was read before."""
    config = validate(ExperimentConfig, apply_overrides(data, overrides), source=source, overrides=overrides)
    return Experiment(config=config, source=source, base_dir=base_dir, overrides=tuple(overrides))


def validate(
    model: type[SomeModel], data: Mapping[str, Any], *, source: str, overrides: Sequence[Override] = ()
) -> SomeModel:
    """``data`` as ``model``; an error names the override that set the offending key, if one did."""
    check_plain(data, source=source)
    try:
        return _validate(model, data)
    except ValidationError as error:
        key, message = explain(error, model, data)
        raise ConfigError(message, file=_source_of(key, source, overrides), key=key or None) from None


def _source_of(key: str, source: str, overrides: Sequence[Override]) -> str:
    """What gave ``key`` its value: the last override that set it, or the file and the overrides inside it."""
    setters = [override.source for override in overrides if override.covers(key)]
    if setters:
        return setters[-1]
    inside = dict.fromkeys(override.source for override in overrides if override.is_inside(key))
    return " with ".join([source, *inside])


def _validate(model: type[SomeModel], data: Mapping[str, Any]) -> SomeModel:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        corrected = with_numbers(data, error)
        if corrected is None:
            raise
        return model.model_validate(corrected)
