"""The ``sim.cost_model`` section: where a simulation's step times come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias

from pydantic import Field, model_validator

from twinserve.experiments.config.calibration import read_calibration
from twinserve.experiments.config.catalog import catalog_file, load_hardware, load_model
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.names import STEPS
from twinserve.experiments.settings.paths import resolve
from twinserve.experiments.settings.schema import FromList, Knot, Section, Term
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes
from twinserve.sim_backend.calibration.calibrated import CalibratedCostModel
from twinserve.sim_backend.cost_model import CostModel
from twinserve.sim_backend.linear import LinearCostModel, LinearTerms
from twinserve.sim_backend.memory import ModelDoesNotFitError, num_kv_blocks
from twinserve.sim_backend.replay import ReplayCostModel
from twinserve.sim_backend.roofline import RooflineCostModel


class LinearSection(Section):
    """Terms of ``twinserve.sim_backend.linear.LinearTerms``, with its names and units."""

    base_ms: Term = 0.0
    per_token_ms: Term = 0.0
    floor_ms: Term = 0.0
    per_context_token_us: Term = 0.0
    host_gap_ms: Term = 0.0
    host_per_row_us: Term = 0.0
    host_per_started_us: Term = 0.0
    knots: Annotated[tuple[Knot, ...], FromList] = ()

    @model_validator(mode="after")
    def _is_sound(self) -> LinearSection:
        self.terms()
        return self

    def terms(self) -> LinearTerms:
        return LinearTerms(**{name: getattr(self, name) for name in LinearSection.model_fields})


class LinearConfig(LinearSection):
    """Linear step times; ``decode_only`` gives steps without prefill work terms of their own."""

    kind: Literal["linear"]
    decode_only: LinearSection | None = None


class RooflineConfig(Section):
    """Step times from a datasheet; ``hardware`` is a name of ``configs/hardware`` or the path of a YAML file."""

    kind: Literal["roofline"]
    hardware: str


class CalibrationConfig(Section):
    """Step times fitted to measurements; ``file`` is a name of ``configs/calibrations`` or the path of a YAML file."""

    kind: Literal["calibration"]
    file: str
    out_of_range: Literal["warn", "fail"] = "warn"


class ReplayConfig(Section):
    """Step times of a recorded run: ``run`` is its folder, with a steps.parquet."""

    kind: Literal["replay"]
    run: str


CostModelConfig: TypeAlias = Annotated[
    LinearConfig | RooflineConfig | CalibrationConfig | ReplayConfig, Field(discriminator="kind")
]


class NamedModel(Protocol):
    """What a cost model needs of the ``model`` section."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...


class EngineSizes(Protocol):
    """The engine settings that decide how many KV blocks fit."""

    @property
    def block_size(self) -> int: ...
    @property
    def gpu_memory_utilization(self) -> float: ...
    @property
    def max_num_batched_tokens(self) -> int: ...
    @property
    def max_num_seqs(self) -> int: ...


def build_cost_model(config: CostModelConfig, *, model: NamedModel, base_dir: Path) -> CostModel:
    """The cost model that ``config`` describes, fresh for one run; paths are relative to ``base_dir``.

    Raises:
        ConfigError: a file that is missing or wrong, or a model without a known shape.
    """
    match config:
        case LinearConfig():
            decode_only = None if config.decode_only is None else config.decode_only.terms()
            return LinearCostModel(config.terms(), decode_only)
        case RooflineConfig():
            shape = load_model(model.name, model.dtype, base_dir)
            return RooflineCostModel(shape, load_hardware(config.hardware, base_dir))
        case CalibrationConfig():
            calibration = read_calibration(_calibration_path(config, base_dir))
            return CalibratedCostModel(calibration, config.out_of_range)
        case ReplayConfig():
            return _replay(resolve(config.run, base_dir) / STEPS)


def known_num_blocks(config: CostModelConfig, *, model: NamedModel, engine: EngineSizes, base_dir: Path) -> int | None:
    """KV blocks of ``engine.block_size`` tokens that the source of step times implies.

    Measured for a calibration, derived from memory for a roofline, None where nothing is known.

    Raises:
        ConfigError: as ``build_cost_model``, or a model that does not fit the GPU.
    """
    if isinstance(config, CalibrationConfig):
        calibration = read_calibration(_calibration_path(config, base_dir))
        return max(calibration.num_blocks * calibration.block_size // engine.block_size, 1)
    if not isinstance(config, RooflineConfig):
        return None
    shape = load_model(model.name, model.dtype, base_dir)
    try:
        return num_kv_blocks(
            shape,
            load_hardware(config.hardware, base_dir),
            block_size=engine.block_size,
            gpu_memory_utilization=engine.gpu_memory_utilization,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_num_seqs=engine.max_num_seqs,
        )
    except ModelDoesNotFitError as error:
        raise ConfigError(str(error), key="sim.cost_model.hardware") from error


def known_capture_sizes(config: CostModelConfig, *, base_dir: Path) -> CaptureSizes:
    """The CUDA graphs of the engine that was calibrated; none for other sources."""
    if not isinstance(config, CalibrationConfig):
        return NO_GRAPHS
    return read_calibration(_calibration_path(config, base_dir)).capture_sizes


def cost_model_files(config: CostModelConfig, *, model: NamedModel, base_dir: Path) -> dict[str, Path]:
    """The input files behind ``config``, by role: a run's identity covers their contents."""
    match config:
        case LinearConfig():
            return {}
        case RooflineConfig():
            return {
                "hardware": catalog_file("hardware", config.hardware, base_dir),
                "model": catalog_file("models", model.name, base_dir),
            }
        case CalibrationConfig():
            return {"calibration": _calibration_path(config, base_dir)}
        case ReplayConfig():
            return {"replay": resolve(config.run, base_dir) / STEPS}


def _calibration_path(config: CalibrationConfig, base_dir: Path) -> Path:
    return catalog_file("calibrations", config.file, base_dir)


def _replay(path: Path) -> ReplayCostModel:
    from pyarrow import parquet

    try:
        steps = parquet.read_table(path, columns=["start_ns", "end_ns"]).to_pydict()
    except (OSError, ValueError, KeyError) as error:
        message = f"cannot be read as recorded steps: {error}; give the folder of a finished run"
        raise ConfigError(message, file=path, key="sim.cost_model.run") from error
    return ReplayCostModel(list(zip(steps["start_ns"], steps["end_ns"], strict=True)))
