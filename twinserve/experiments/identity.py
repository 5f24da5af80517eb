"""The run id: equal exactly when a run could only come out the same."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import Any

from twinserve.experiments.config.catalog import catalog_file
from twinserve.experiments.config.cost_model import cost_model_files
from twinserve.experiments.config.experiment import ExperimentConfig
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.config.policies import chosen, names_of, policy_errors, qualified_name
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files import strict_json
from twinserve.experiments.settings.input_paths import map_paths
from twinserve.experiments.settings.paths import resolve
from twinserve.experiments.workloads import workload_files
from twinserve.sched_core.policies.choice import Maker
from twinserve.sched_core.policies.registry import seams_with_estimator

ID_LENGTH = 16
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
    """``run_id`` and what it is the hash of: input files (and classes given in Python) by role, and our own code.

    ``reusable`` is False when what a policy does cannot be told from its source: a stored run may then be of another.
    """

    run_id: str
    inputs: Mapping[str, str]
    code: str
    reusable: bool = True


def identify(experiment: Experiment, code: str) -> Identity:
    """The identity of a run; ``code`` is ``code_digest`` of its backend.

    Raises:
        ConfigError: an input file is missing.
    """
    with experiment.errors_name_source():
        files = sorted(input_files(experiment).items())
        inputs = {role: digest(path, KEYS_OF_ROLES.get(role, role)) for role, path in files}
        config = relevant(experiment.config) | _estimator_section(experiment)
    return _identity(experiment, config, inputs, code)


def identify_profile(experiment: Experiment, code: str, settings: Mapping[str, Any]) -> Identity:
    """The identity of a profile of the experiment's engine; ``settings`` say how much is measured.

    Raises:
        ConfigError: the model folder or a policy's module is missing.
    """
    with experiment.errors_name_source():
        files = sorted(engine_files(experiment).items())
        inputs = {role: digest(path, KEYS_OF_ROLES.get(role, role)) for role, path in files}
        estimated = _estimator_section(experiment)
    data = experiment.config.model_dump()
    config = {name: data[name] for name in PROFILED} | {"profile": dict(settings)} | estimated
    return _identity(experiment, config, inputs, code)


def _identity(experiment: Experiment, config: Mapping[str, Any], inputs: Mapping[str, str], code: str) -> Identity:
    located = map_paths(config, experiment.base_dir, lambda _: None)
    sources = {seam: source_of(maker) for seam, maker in experiment.makers.items()}
    inputs = {**inputs, **{f"engine.{seam}": _text_digest(source or "") for seam, source in sources.items()}}
    parameters = {seam: choice for seam, choice in chosen(experiment.config.engine).items() if isinstance(choice, dict)}
    payload = strict_json.plain({"config": located, "inputs": inputs, "code": code, "policies": parameters})
    text = json.dumps(_canonical(payload), sort_keys=True, allow_nan=False)
    run_id = hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]
    return Identity(run_id=run_id, inputs=inputs, code=code, reusable=None not in sources.values())


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
    return files | _cost_model_files(experiment) | _policy_files(experiment)


def engine_files(experiment: Experiment) -> dict[str, Path]:
    """What the real engine reads: its weights or, without any, the model's file; and what its policies need."""
    model, base_dir = experiment.config.model, experiment.base_dir
    if model.path is not None:
        files = {"model.path": resolve(model.path, base_dir)}
    elif model.load_format == "dummy":
        files = {"model.name": catalog_file("models", model.name, base_dir)}
    else:
        files = {}
    return (
        files | _policy_files(experiment) | (_cost_model_files(experiment) if _asks_for_step_times(experiment) else {})
    )


def _cost_model_files(experiment: Experiment) -> dict[str, Path]:
    config = experiment.config
    if config.sim is None:
        return {}
    return cost_model_files(config.sim.cost_model, model=config.model, base_dir=experiment.base_dir)


def _estimator_section(experiment: Experiment) -> dict[str, Any]:
    """The ``sim`` section where policies of a real engine ask for its step times."""
    sim = experiment.config.sim
    return {"sim": sim.model_dump()} if sim is not None and _asks_for_step_times(experiment) else {}


def _asks_for_step_times(experiment: Experiment) -> bool:
    with policy_errors():
        return bool(seams_with_estimator(experiment.policy_choices()))


def policy_modules(experiment: Experiment) -> dict[str, str]:
    """The modules of policies that are named by import path, by role."""
    names = names_of(experiment.config.engine)
    paths = {f"engine.{seam}": name for seam, name in names.items() if seam not in experiment.makers}
    return {key: path.partition(":")[0] for key, path in paths.items() if ":" in path}


def _policy_files(experiment: Experiment) -> dict[str, Path]:
    return {key: _module_file(key, module) for key, module in policy_modules(experiment).items()}


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


def source_of(maker: Maker) -> str | None:
    """The source that says what ``maker`` makes: of a class with its bases, or of a plain function.

    None when that is not all that decides: closures, instances, attributes that are objects, source that is not there.
    """
    try:
        if isinstance(maker, type):
            return "\n".join(_class_source(kind) for kind in maker.__mro__ if kind is not object)
        return _function_source(maker)
    except (OSError, TypeError):
        return None


def _class_source(kind: type[Any]) -> str:
    """Its methods and plain values; a class defined in a notebook has no other source than that of its methods."""
    parts = [qualified_name(kind)]
    for name, value in vars(kind).items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(function, FunctionType):
            parts.append(_function_source(function))
        elif isinstance(value, int | float | str | tuple | None):
            parts.append(f"{name} = {value!r}")
        elif not name.startswith("__"):
            raise TypeError(f"{name} is an object")
    return "\n".join(parts)


def _function_source(function: object) -> str:
    if not isinstance(function, FunctionType) or (
        function.__closure__ and function.__code__.co_freevars != ("__class__",)
    ):
        raise TypeError("what it does depends on more than its source")
    return inspect.getsource(function)


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
