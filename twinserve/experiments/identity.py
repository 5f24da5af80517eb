"""The run id: equal exactly when a run could only come out the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from twinserve.experiments.config.catalog import catalog_file
from twinserve.experiments.config.cost_model import cost_model_files
from twinserve.experiments.config.experiment import ExperimentConfig
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files import strict_json
from twinserve.experiments.settings.input_paths import map_paths
from twinserve.experiments.settings.paths import resolve
from twinserve.experiments.workloads import workload_files

ID_LENGTH = 16
SEAMS = ("policy", "order", "victim", "budget", "admission")
KEYS_OF_ROLES: Mapping[str, str] = MappingProxyType(
    {
        "replay": "sim.cost_model.run",
        "calibration": "sim.cost_model.file",
        "hardware": "sim.cost_model.hardware",
        "model": "model.name",
    }
)
CODE = ("backends", "config", "files", "metrics", "result.py", "run.py", "settings", "store", "workloads")
"""Parts of ``experiments`` that a run's result depends on; the rest shows results, measures steps or fits them."""
PROFILED = ("model", "engine", "real", "seed")
"""Sections that a profile depends on: it makes its own requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """``run_id`` and what it is the hash of: input files by role, and the package's own code."""

    run_id: str
    inputs: Mapping[str, str]
    code: str


def identify(experiment: Experiment, code: str) -> Identity:
    """The identity of a run; ``code`` is ``code_digest`` of its backend.

    Raises:
        ConfigError: an input file is missing.
    """
    with experiment.errors_name_source():
        files = sorted(input_files(experiment).items())
        inputs = {role: digest(path, KEYS_OF_ROLES.get(role, role)) for role, path in files}
    return _identity(experiment, relevant(experiment.config), inputs, code)


def identify_profile(experiment: Experiment, code: str, settings: Mapping[str, Any]) -> Identity:
    """The identity of a profile of the experiment's engine; ``settings`` say how much is measured.

    Raises:
        ConfigError: the model folder or a policy's module is missing.
    """
    with experiment.errors_name_source():
        inputs = {key: digest(path, key) for key, path in sorted(engine_files(experiment).items())}
    data = experiment.config.model_dump()
    config = {name: data[name] for name in PROFILED} | {"profile": dict(settings)}
    return _identity(experiment, config, inputs, code)


def _identity(experiment: Experiment, config: Mapping[str, Any], inputs: Mapping[str, str], code: str) -> Identity:
    located = map_paths(config, experiment.base_dir, lambda _: None)
    payload = strict_json.plain({"config": located, "inputs": inputs, "code": code})
    text = json.dumps(_canonical(payload), sort_keys=True, allow_nan=False)
    run_id = hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]
    return Identity(run_id=run_id, inputs=inputs, code=code)


def _canonical(data: Any) -> Any:
    """``data`` with whole numbers written one way: 50 and 50.0 are the same setting."""
    if isinstance(data, Mapping):
        return {key: _canonical(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_canonical(value) for value in data]
    return int(data) if isinstance(data, float) and data.is_integer() else data


def relevant(config: ExperimentConfig) -> dict[str, Any]:
    """The part of a configuration that can change the run: not the other backend's settings."""
    data = config.model_dump()
    del data["sim" if config.backend == "real" else "real"]
    if config.backend == "sim":
        if config.prices_chosen_graphs:
            data["graphs_of"] = config.real.attention_backend
        del data["model"]["path"], data["model"]["load_format"]
    return data


def input_files(experiment: Experiment) -> dict[str, Path]:
    """Every file or folder that the run reads, by role."""
    config, base_dir = experiment.config, experiment.base_dir
    workload = workload_files(config.workload, base_dir)
    files = {f"workload.{number}": path for number, path in enumerate(workload)}
    if config.backend == "real":
        return files | engine_files(experiment)
    if config.sim is not None:
        files |= cost_model_files(config.sim.cost_model, model=config.model, base_dir=base_dir)
    return files | _policy_modules(config)


def engine_files(experiment: Experiment) -> dict[str, Path]:
    """What the real engine reads: its weights or, without any, the model's file; and policies of one's own."""
    model, base_dir = experiment.config.model, experiment.base_dir
    if model.path is not None:
        files = {"model.path": resolve(model.path, base_dir)}
    elif model.load_format == "dummy":
        files = {"model.name": catalog_file("models", model.name, base_dir)}
    else:
        files = {}
    return files | _policy_modules(experiment.config)


def _policy_modules(config: ExperimentConfig) -> dict[str, Path]:
    """The source files of policies named by import path."""
    paths = {f"engine.{seam}": getattr(config.engine, seam) for seam in SEAMS}
    return {key: _module_file(key, path.partition(":")[0]) for key, path in paths.items() if ":" in path}


def _module_file(key: str, module: str) -> Path:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.has_location:
        raise ConfigError(
            f"there is no module {module!r} in a file; give an importable one as package.module:Name", key=key
        )
    return Path(spec.origin)


def digest(path: Path, key: str) -> str:
    """sha256 of a file; of a folder, of its files' names and contents (weights count by name and size only).

    Raises:
        ConfigError: naming ``key`` when it is missing or cannot be read.
    """
    try:
        if path.is_dir():
            return _digest_of(sorted(file for file in path.rglob("*") if file.is_file()), path)
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give the path of a readable file", key=key) from error


def code_digest(backend: str) -> str:
    """Digest of the code that decides what a run of ``backend`` ("sim" or "real") gives."""
    root = Path(__file__).parents[1]
    parts = ["sched_core", "run_core", f"{backend}_backend", *(f"experiments/{part}" for part in CODE)]
    files = [file for part in parts for file in _python_files(root / part)]
    return _digest_of(sorted(files), root)


def _python_files(place: Path) -> Iterable[Path]:
    return place.rglob("*.py") if place.is_dir() else [place]


def _digest_of(files: Iterable[Path], root: Path) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.relative_to(root).as_posix()}\0{file.stat().st_size}\0".encode())
        if file.suffix not in (".safetensors", ".bin", ".pt"):
            total.update(file.read_bytes())
    return total.hexdigest()
