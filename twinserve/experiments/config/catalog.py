"""Hardware and model files: shipped ones by name, one's own by path."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, Field, ValidationError, create_model

from twinserve.experiments.errors import ConfigError, shown
from twinserve.experiments.files.probe import is_file
from twinserve.experiments.settings.explain import explain, suggest
from twinserve.experiments.settings.paths import packaged_configs, packaged_names, resolve
from twinserve.experiments.settings.schema import FromList, Section
from twinserve.experiments.settings.yaml_loader import read_yaml
from twinserve.run_core.model_config import DTYPE_BYTES, ModelConfig
from twinserve.sim_backend.hardware import Hardware

KEYS: Mapping[str, str] = MappingProxyType(
    {"hardware": "sim.cost_model.hardware", "models": "model.name", "calibrations": "sim.cost_model.file"}
)
"""Folder of the catalogue -> the setting that names one of its files."""

_BOUNDED: Mapping[Any, Any] = MappingProxyType(
    {int: Annotated[int, Field(le=1 << 32)], float: Annotated[float, Field(le=1e15)]}
)
"""Far above any hardware or model; products of a few such numbers are finite."""

SectionT = TypeVar("SectionT", bound=Section)
ValueT = TypeVar("ValueT", Hardware, ModelConfig)


def load_hardware(name: str, base_dir: Path) -> Hardware:
    """The GPU called ``name``: a file of ``configs/hardware`` ("rtx-4090"), or a YAML file by path.

    Raises:
        ConfigError: no such GPU, or a file that is wrong.
    """
    return _read(Hardware, catalog_file("hardware", name, base_dir))


def load_model(name: str, dtype: str, base_dir: Path) -> ModelConfig:
    """The model called ``name``, in type ``dtype``.

    A file of ``configs/models`` ("Qwen/Qwen3-8B" is qwen3-8b), or a YAML file by path.

    Raises:
        ConfigError: no such model, a file that is wrong, or a dtype without a known size.
    """
    if dtype not in DTYPE_BYTES:
        raise ConfigError(f"got {shown(dtype)}; {suggest(dtype, list(DTYPE_BYTES))}", key="model.dtype")
    return _read(ModelConfig, catalog_file("models", name, base_dir), dtype=dtype)


def catalog_file(folder: str, name: str, base_dir: Path) -> Path:
    """The YAML file that ``name`` means: a path ending in .yaml, or an entry of ``configs/<folder>``.

    Raises:
        ConfigError: there is none; the message names what is near.
    """
    if name.endswith((".yaml", ".yml")):
        path = resolve(name, base_dir)
    else:
        path = packaged_configs() / folder / f"{slug(name)}.yaml"
    if is_file(path):
        return path
    known = packaged_names(folder)
    message = f"no {folder} file for {shown(name, 200)}; {suggest(slug(name), known)} (or give the path of a YAML file)"
    raise ConfigError(message, key=KEYS.get(folder))


def slug(name: str) -> str:
    """The file name of a catalogue entry: "Qwen/Qwen3-8B" is "qwen3-8b", "RTX 4090" is "rtx-4090"."""
    return name.rsplit("/", 1)[-1].lower().replace(" ", "-").replace("_", "-")


def read_section(kind: type[SectionT], path: Path) -> SectionT:
    """A YAML file as a section.

    Raises:
        ConfigError: naming the file and the key.
    """
    data = read_yaml(path)
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        key, message = explain(error, kind, data)
        raise ConfigError(message, file=path, key=key) from error


def _read(kind: type[ValueT], path: Path, **given: str) -> ValueT:
    """The value in a file, but for the fields that are ``given``, which a file may not have."""
    values = read_section(_section_of(kind, given.keys()), path)
    try:
        return kind(**{**dict(values), **given})
    except ValueError as error:
        raise ConfigError(str(error), file=path) from error


def _section_of(kind: type[Any], left_out: Collection[str] = ()) -> type[Section]:
    """The strict section with the fields of a dataclass but those ``left_out``."""
    hints = get_type_hints(kind)
    columns: dict[str, Any] = {
        field.name: (_as_written(hints[field.name]), ... if field.default is MISSING else field.default)
        for field in fields(kind)
        if field.name not in left_out
    }
    return create_model(kind.__name__, __base__=Section, **columns)


def _as_written(hint: Any) -> Any:
    """The type of a field as YAML has it: a list for a tuple, a mapping for a dataclass."""
    if get_origin(hint) is tuple:
        return Annotated[hint, FromList]
    if get_origin(hint) is UnionType:
        return reduce(or_, map(_as_written, get_args(hint)))
    if isinstance(hint, type) and is_dataclass(hint):
        return Annotated[_section_of(hint), AfterValidator(lambda section: hint(**dict(section)))]
    return _BOUNDED.get(hint, hint)
