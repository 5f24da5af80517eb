"""Chooses the reader of a folder: a profile, a real run, or LLMServingSim's kernel times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from twinserve.experiments.calibrate.facts import Source
from twinserve.experiments.calibrate.kernel_folder import ATTENTION, kernel_source
from twinserve.experiments.calibrate.step_folders import profile_source, run_source
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.names import PROFILE, STEPS
from twinserve.experiments.files.probe import is_file, is_folder

READERS: Mapping[str, Callable[[Path, int | None], Source]] = MappingProxyType(
    {PROFILE: profile_source, STEPS: run_source, ATTENTION: kernel_source}
)
"""By the file that marks a folder of the kind."""


def read_source(folder: Path, num_blocks: int | None = None) -> Source:
    """The measured steps of ``folder``; ``num_blocks`` is for kernel times, which know of no engine.

    Raises:
        ConfigError: the folder is none of the three kinds, or something in it is missing or wrong.
    """
    for marker, reader in READERS.items():
        if is_file(folder / marker):
            return reader(folder, num_blocks)
    what = "is none of these" if is_folder(folder) else "is no folder"
    inner = next(iter(sorted(path.parent for path in folder.glob("*/*.parquet"))), None)
    hint = f" (did you mean {inner}?)" if inner is not None else ""
    kinds = f"a profile ({PROFILE}), a real run ({STEPS}) or LLMServingSim's kernel times ({ATTENTION})"
    raise ConfigError(f"{what}: {kinds}; give one{hint}", file=folder)
