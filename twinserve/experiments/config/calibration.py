"""Calibrations as YAML files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from twinserve.experiments.config.catalog import read_section
from twinserve.experiments.config.engine import CudaGraphSizes
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.atomic import write_files, write_text
from twinserve.experiments.files.probe import is_folder
from twinserve.experiments.settings.schema import FromList, Knot, PositiveInt, Section, Term
from twinserve.experiments.settings.yaml_loader import dump_yaml
from twinserve.sched_core.dispatch import CaptureSizes, GraphMode
from twinserve.sim_backend.calibration.values import Calibration, HeldOutError, HostGap, StepTerms, Throttle

Mode = Literal["eager", "decode", "mixed"]


class _Fields(Section):
    """The fields of a value; what the value refuses is wrong at this section's key."""

    makes: ClassVar[type[Any]]

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        self.value()
        return self

    def value(self) -> Any:
        return self.makes(**dict(self))


class _Terms(_Fields):
    makes = StepTerms

    dense_knots_ms: Annotated[tuple[Knot, ...], FromList]
    floor_ms: Term = 0.0
    per_context_token_us: Term = 0.0
    per_prefill_pair_us: Term = 0.0
    per_prefill_key_us: Term = 0.0
    per_row_us: Term = 0.0
    per_sample_us: Term = 0.0
    throttled_ms: Term = 0.0
    per_throttled_token_us: Term = 0.0
    per_throttled_context_token_us: Term = 0.0


class _Throttle(_Fields):
    makes = Throttle

    time_constant_ms: Term
    from_share: float


class _HostGap(_Fields):
    makes = HostGap

    base_ms: Term = 0.0
    per_row_us: Term = 0.0
    per_started_us: Term = 0.0
    prefill_us: Term = 0.0


class _HeldOut(Section):
    num_steps: PositiveInt
    mape_percent: float
    p95_percent: float
    bias_percent: float


class CalibrationFile(Section):
    """The file format, version 1; fields as in ``twinserve.sim_backend.calibration.values.Calibration``."""

    version: Literal[1]
    gpu: str
    model: str
    dtype: str
    attention_backend: str
    num_blocks: PositiveInt
    block_size: PositiveInt
    origin: str
    modes: dict[Mode, _Terms]
    capture_sizes: CudaGraphSizes = CudaGraphSizes()
    host_gap: _HostGap = _HostGap()
    throttles: dict[Mode, _Throttle] = Field(default_factory=dict)
    covered: dict[str, Annotated[tuple[int, int], FromList]]
    held_out: _HeldOut | None = None

    @model_validator(mode="after")
    def _is_sound(self) -> CalibrationFile:
        self.value()
        return self

    def value(self) -> Calibration:
        """The calibration that the file holds."""
        values = dict(self)
        del values["version"]
        values["modes"] = {GraphMode(mode): terms.value() for mode, terms in self.modes.items()}
        values["capture_sizes"] = CaptureSizes(**dict(self.capture_sizes))
        values["host_gap"] = self.host_gap.value()
        values["throttles"] = {GraphMode(mode): throttle.value() for mode, throttle in self.throttles.items()}
        values["held_out"] = None if self.held_out is None else HeldOutError(**dict(self.held_out))
        return Calibration(**values)


def read_calibration(path: Path) -> Calibration:
    """The calibration in a YAML file.

    Raises:
        ConfigError: the file cannot be read or is wrong.
    """
    return read_section(CalibrationFile, path).value()


def check_destination(path: Path, option: str) -> None:
    """Finds a ``path`` to which no calibration can be written before the work, not after it.

    Raises:
        ConfigError: it is named like no YAML file, is a folder, or cannot be written.
    """
    if path.suffix not in (".yaml", ".yml"):
        raise ConfigError("is no YAML file; call it NAME.yaml", file=path, key=option)
    if is_folder(path):
        raise ConfigError("is a folder; give the name of a file", file=path, key=option)
    write_files(path.parent, {})


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Writes a file that ``read_calibration`` reads back as the same value; it appears whole or not at all."""
    data: dict[str, Any] = {"version": 1, **asdict(calibration)}
    for per_mode in ("modes", "throttles"):
        data[per_mode] = {str(mode): values for mode, values in data[per_mode].items()}
    write_text(path, dump_yaml(_plain(data)))


def _plain(value: Any) -> Any:
    """``value`` with lists for tuples, which is all that YAML knows."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
