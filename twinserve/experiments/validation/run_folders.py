"""Validates every real run below a folder: one row per run, and the runs that failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinserve.experiments.backends.backend_run import Progress
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.csv_file import CsvRow, write_csv
from twinserve.experiments.files.names import VALIDATION_SUMMARY
from twinserve.experiments.files.probe import below
from twinserve.experiments.plots.describe import value_label
from twinserve.experiments.plots.error_bars import plot_point_errors
from twinserve.experiments.plots.style import save
from twinserve.experiments.store.run_folder import find_run_folders, read_config
from twinserve.experiments.validation.cost_source import CostSource
from twinserve.experiments.validation.recorded import RecordedRun, read_recorded_run
from twinserve.experiments.validation.validate import Validation, validate_run
from twinserve.experiments.validation.validation_table import figure_label
from twinserve.experiments.validation.write import write_validation

RunReader = Callable[[Path], RecordedRun]
"""``read_recorded_run`` with the user's overrides, and with what the user trusts."""
PICTURE = "validation.png"
SHOWN = ("output_throughput", "p99_ttft_ms", "p99_tpot_ms", "p99_itl_ms")
"""The figures that the picture and the table on the screen show."""
NOT_KEYS = ("name", "model.path", "record.decisions")
"""Keys that tell no two points apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointResult:
    """One validated point. ``settings`` are its configuration by dotted key; ``failure`` as in ``Validation``."""

    name: str
    run_id: str
    settings: Mapping[str, Any]
    parity: str
    failure: str | None
    mean_abs_error_percent: float | None
    errors: Mapping[str, float]
    figures: CsvRow


@dataclass(slots=True, kw_only=True)
class FolderOutcome:
    """``failed`` has a folder and one line for each point that could not be validated, or decided otherwise."""

    points: list[PointResult] = field(default_factory=list)
    failed: list[tuple[Path, str]] = field(default_factory=list)
    num_real: int = 0
    num_simulated: int = 0

    @property
    def keys(self) -> list[str]:
        """The configuration keys in which points differ."""
        every = dict.fromkeys(key for point in self.points for key in point.settings)
        return [key for key in every if len({str(point.settings.get(key)) for point in self.points}) > 1]

    @property
    def labels(self) -> list[str]:
        """A name for each point: its own, with its run id where several share it."""
        names = [point.name for point in self.points]
        return [
            point.name if names.count(point.name) == 1 else _label(point, self.keys, names) for point in self.points
        ]


def validate_folder(
    folder: Path,
    source: CostSource,
    out: Path,
    read: RunReader = read_recorded_run,
    on_progress: Progress | None = None,
) -> FolderOutcome:
    """Validate the real runs in ``folder`` (two levels deep) into ``out/<run id>``, with a summary in ``out``.

    Raises:
        ConfigError: there is no real run, or ``out`` cannot be written.
    """
    found = find_run_folders(folder)
    real = [run for run in found if _backend(run) != "sim"]
    if not real:
        what = "holds simulated runs only" if found else "holds no run"
        raise ConfigError(f"{what}; give a folder of `twinserve run --backend real --decisions`", file=folder)
    outcome = FolderOutcome(num_real=len(real), num_simulated=len(found) - len(real))
    for done, run in enumerate(real, start=1):
        _add(outcome, run, source, out, read)
        if on_progress is not None:
            on_progress(done, len(real))
    _write(outcome, source, out)
    return outcome


def _backend(folder: Path) -> Any:
    try:
        return read_config(folder).get("backend")
    except ConfigError:  # said again, with the rest of what is wrong, when the point is validated
        return None


def _add(outcome: FolderOutcome, folder: Path, source: CostSource, out: Path, read: RunReader) -> None:
    try:
        run = read(folder)
        place = below(out, run.run_id)
        validation = validate_run(run, source)
    except ConfigError as error:
        outcome.failed.append((folder, str(error)))
        return
    write_validation(validation, place)
    point = _point(validation)
    outcome.points.append(point)
    if point.failure is not None:
        outcome.failed.append((folder, point.failure))


def _point(validation: Validation) -> PointResult:
    config = validation.run.config.model_dump()
    parity = validation.parity
    return PointResult(
        name=validation.run.config.name,
        run_id=validation.run.run_id,
        settings={key: value for key, value in _flat(config).items() if key not in NOT_KEYS},
        parity="not checked" if parity is None else "equal" if parity.equal else "differs",
        failure=validation.failure,
        mean_abs_error_percent=validation.mean_abs_error_percent,
        errors=validation.errors,
        figures=_figure_columns(validation),
    )


def _figure_columns(validation: Validation) -> CsvRow:
    row: CsvRow = {}
    for name, figure in validation.figures.items():
        row |= {name: figure.real, f"{name}_simulated": figure.simulated, f"{name}_error_percent": figure.error_percent}
    return row


def _flat(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= _flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value}
    return flat


def _label(point: PointResult, keys: Sequence[str], names: Sequence[str]) -> str:
    values = ", ".join(value_label(key, point.settings.get(key)) for key in keys)
    return f"{point.name} {values or point.run_id}" if len(set(names)) > 1 else values or point.run_id


def _write(outcome: FolderOutcome, source: CostSource, out: Path) -> None:
    if not outcome.points:
        return
    write_csv(out / VALIDATION_SUMMARY, [_row(point, outcome.keys) for point in outcome.points])
    names = {name: figure_label(name).split(" (")[0] for name in SHOWN}
    points = {
        label: {shown: point.errors.get(name) for name, shown in names.items()}
        for label, point in zip(outcome.labels, outcome.points, strict=True)
    }
    figure = plot_point_errors(points, list(names.values()), f"simulated against real, {source.label}")
    save(figure, out / PICTURE)


def _row(point: PointResult, keys: Sequence[str]) -> CsvRow:
    settings = {key: point.settings.get(key) for key in keys}
    head = {"run_id": point.run_id, "name": point.name, **settings, "parity": point.parity}
    return {**head, "mean_abs_error_percent": point.mean_abs_error_percent, **point.figures}
