"""Finds configurations: at the given path, then among the packaged ones."""

from __future__ import annotations

from pathlib import Path

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.probe import expanded, is_file, is_folder
from twinserve.experiments.settings.explain import suggest

PARTS = ("models/", "hardware/", "calibrations/")
"""Folders of files that experiments name, which are none themselves."""


def packaged_configs() -> Path:
    """The folder of the configurations that come with the package."""
    return Path(__file__).parents[2] / "configs"


def find_config(name: str) -> Path:
    """The YAML file ``name``: a path, or the name of a packaged one with or without ``configs/`` and ``.yaml``.

    Raises:
        ConfigError: there is no such file.
    """
    given = expanded(name)
    if is_file(given):
        return given.absolute()
    inside = packaged_configs() / name.removeprefix("configs/")
    for candidate in (inside, inside.with_name(f"{inside.name}.yaml")):
        if not given.is_absolute() and is_file(candidate):
            return candidate
    what = "is a folder" if is_folder(given) else "does not exist"
    known = suggest(_stem(name), packaged_experiments())
    raise ConfigError(f"{what}; give a YAML file or a packaged one ({known})", file=name or "''")


def packaged_experiments() -> list[str]:
    """Names of the packaged experiments and sweeps."""
    return [name for name in packaged_names() if not name.startswith(PARTS)]


def packaged_names(folder: str = "") -> list[str]:
    """Names, relative to ``configs/`` (or to ``folder`` inside it), of the packaged YAML files."""
    root = packaged_configs() / folder
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def _stem(name: str) -> str:
    return name.removeprefix("configs/").removesuffix(".yaml").removesuffix(".yml")


def resolve(path: str, base_dir: Path) -> Path:
    """A path written in a YAML file: absolute, ``~``, or relative to the folder of that file."""
    return base_dir / expanded(path)
