"""The settings of one benchmark, and the experiment of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinserve.experiments.bench.cases import FIXED_KEYS
from twinserve.experiments.config.load import Experiment, load_experiment
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.overrides import Override

QUICK_PROMPTS = 32
_FULL_REPEATS, _QUICK_REPEATS = 20, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """``config`` is the experiment's file or packaged name, ``overrides`` what the user sets in all rows."""

    config: str
    overrides: tuple[Override, ...]
    out: Path
    quick: bool = False
    force: bool = False

    @property
    def repeats(self) -> int:
        """How often a single step is timed."""
        return _QUICK_REPEATS if self.quick else _FULL_REPEATS

    def check(self) -> None:
        """Raises ConfigError for an override of what the rows set."""
        for override in self.overrides:
            for key in FIXED_KEYS:
                if override.covers(key) or override.is_inside(key):
                    message = (
                        "is what the rows of the table differ in; choose rows with --cases, or use `twinserve run`"
                    )
                    raise ConfigError(message, file=override.source, key=override.key)

    def experiment(self, row: str, *settings: Mapping[str, Any]) -> Experiment:
        """The experiment of a row: the file, the user's overrides, then ``settings`` by dotted key."""
        quick = {"workload.num_prompts": QUICK_PROMPTS} if self.quick else {}
        own = [*_as_overrides(quick, "--quick"), *self.overrides]
        for group in settings:
            own += _as_overrides(group, f"row {row}")
        return load_experiment(self.config, own)


def _as_overrides(settings: Mapping[str, Any], source: str) -> Sequence[Override]:
    return [Override(key=key, value=value, source=source) for key, value in settings.items()]
