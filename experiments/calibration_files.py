"""Calibrations as YAML files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import model_validator

from experiments.atomic import write_text
from experiments.catalog import read_section
from experiments.schema import FromList, PositiveInt, Section
from experiments.yaml_loader import dump_yaml
from sched_core.dispatch import CaptureSizes, GraphMode
from sim_backend.calibration.values import Calibration, HeldOutError, HostGap, StepTerms, Throttle

Mode = Literal["eager", "decode", "mixed"]
Knot = Annotated[tuple[float, float], FromList]
Sizes = Annotated[tuple[PositiveInt, ...], FromList]


class _Terms(Section):
    dense_knots_ms: Annotated[tuple[Knot, ...], FromList]
    floor_ms: float = 0.0
    per_context_token_us: float = 0.0
    per_prefill_pair_us: float = 0.0
    per_prefill_key_us: float = 0.0
    per_row_us: float = 0.0
    per_sample_us: float = 0.0
    throttled_ms: float = 0.0
    per_throttled_token_us: float = 0.0


class _Throttle(Section):
    time_constant_ms: float
    from_share: float


class _HostGap(Section):
    base_ms: float = 0.0
    per_row_us: float = 0.0
    per_started_us: float = 0.0
    per_prefill_row_us: float = 0.0


class _HeldOut(Section):
    num_steps: PositiveInt
    mape_percent: float
    p95_percent: float
    bias_percent: float


class _CaptureSizes(Section):
    decode: Sizes = ()
    mixed: Sizes = ()


class CalibrationFile(Section):
    """The file format, version 1; fields as in ``sim_backend.calibration.values.Calibration``."""

    version: Literal[1]
    gpu: str
    model: str
    dtype: str
    attention_backend: str
    num_blocks: PositiveInt
    block_size: PositiveInt
    origin: str
    modes: dict[Mode, _Terms]
    capture_sizes: _CaptureSizes = _CaptureSizes()
    host_gap: _HostGap = _HostGap()
    throttle: _Throttle | None = None
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
        values["modes"] = {GraphMode(mode): StepTerms(**dict(terms)) for mode, terms in self.modes.items()}
        values["capture_sizes"] = CaptureSizes(**dict(self.capture_sizes))
        values["host_gap"] = HostGap(**dict(self.host_gap))
        values["throttle"] = None if self.throttle is None else Throttle(**dict(self.throttle))
        values["held_out"] = None if self.held_out is None else HeldOutError(**dict(self.held_out))
        return Calibration(**values)


def read_calibration(path: Path) -> Calibration:
    """The calibration in a YAML file.

    Raises:
        ConfigError: the file cannot be read or is wrong.
    """
    return read_section(CalibrationFile, path).value()


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Writes a file that ``read_calibration`` reads back as the same value; it appears whole or not at all."""
    data: dict[str, Any] = {"version": 1, **asdict(calibration)}
    data["modes"] = {str(mode): terms for mode, terms in data["modes"].items()}
    write_text(path, dump_yaml(_plain(data)))


def _plain(value: Any) -> Any:
    """``value`` with lists for tuples, which is all that YAML knows."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
