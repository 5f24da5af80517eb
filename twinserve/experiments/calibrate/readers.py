"""Which reader a folder of measured steps needs: a profile, an ordinary real run, or LLMServingSim's kernel times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from twinserve.experiments.calibrate.kernel_folder import read_kernel_folder
from twinserve.experiments.calibrate.source import Source
from twinserve.experiments.calibrate.step_folders import read_profile, read_run
from twinserve.experiments.errors import ConfigError

READERS: Mapping[str, Callable[[Path, int | None], Source]] = MappingProxyType(
    {"profile.parquet": read_profile, "steps.parquet": read_run, "attention.csv": read_kernel_folder}
)
"""By the file that marks a folder of the kind."""


def read_source(folder: Path, num_blocks: int | None = None) -> Source:
    """The measured steps of ``folder``; ``num_blocks`` is for kernel times, which know of no engine.

    Raises:
        ConfigError: the folder is none of the three kinds, or something in it is missing or wrong.
    """
    for marker, reader in READERS.items():
        if (folder / marker).is_file():
            return reader(folder, num_blocks)
    what = "is none of these" if folder.is_dir() else "is no folder"
    inner = next(iter(sorted(path.parent for path in folder.glob("*/*.parquet"))), None)
    hint = f" (did you mean {inner}?)" if inner is not None else ""
    kinds = "a profile (profile.parquet), a real run (steps.parquet) or LLMServingSim's kernel times (attention.csv)"
    raise ConfigError(f"{what}: {kinds}; give one{hint}", file=folder)
