"""The engine and GPU behind measured steps, and a check that several folders measured the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.names import MANIFEST
from twinserve.experiments.store.manifest_facts import manifest_capture_sizes, manifest_count, manifest_text
from twinserve.sched_core.dispatch import CaptureSizes
from twinserve.sim_backend.calibration.values import MeasuredEngine
from twinserve.sim_backend.fitting.measured import MeasuredSteps

SAME = ("gpu", "model", "dtype", "attention_backend", "block_size", "capture_sizes")
"""Facts that folders must share to be fitted together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The engine and GPU behind ``folder``; ``timed`` says whether its steps have device times."""

    folder: Path
    engine: MeasuredEngine
    timed: bool


@dataclass(frozen=True, slots=True)
class Source:
    """The measured steps of one folder.

    ``origin`` describes them in a calibration's origin; ``notes`` are lines for the user.
    """

    facts: Facts
    steps: MeasuredSteps
    origin: str
    notes: tuple[str, ...] = ()


def facts_of(folder: Path, manifest: Mapping[str, Any], *, timed: bool) -> Facts:
    """The facts in a manifest of a real run or of a profile; a run's block size must have been put into it.

    Raises:
        ConfigError: naming what the manifest lacks.
    """
    path = folder / MANIFEST
    engine = MeasuredEngine(
        gpu=manifest_text(manifest, "device", path),
        model=manifest_text(manifest, "model", path),
        dtype=manifest_text(manifest, "dtype", path),
        attention_backend=manifest_text(manifest, "attention_backend", path),
        num_blocks=manifest_count(manifest, "num_blocks", path),
        block_size=manifest_count(manifest, "block_size", path),
        capture_sizes=manifest_capture_sizes(manifest, path),
    )
    return Facts(folder=folder, engine=engine, timed=timed)


def check_agreement(facts: Sequence[Facts]) -> None:
    """Refuses folders of different engines.

    Raises:
        ConfigError: naming the two folders and what differs.
    """
    first, *others = facts
    for other in others:
        for name, (here, there) in _pairs(first, other).items():
            if here != there:
                message = f"{name} is {there}, but {here} in {first.folder}; calibrate them apart"
                raise ConfigError(message, file=other.folder)


def _pairs(first: Facts, other: Facts) -> dict[str, tuple[str, str]]:
    """The facts that must be equal, as text."""
    pairs = {name: (getattr(first.engine, name), getattr(other.engine, name)) for name in SAME}
    pairs["whether the device was timed"] = (first.timed, other.timed)
    return {name: (_shown(here), _shown(there)) for name, (here, there) in pairs.items()}


def _shown(value: Any) -> str:
    if isinstance(value, CaptureSizes):
        return " ".join(f"{kind} {list(sizes)}" for kind, sizes in asdict(value).items())
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
