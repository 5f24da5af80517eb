"""``twinserve validate``: compares a real run, or a folder of them, with its simulation."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinserve.experiments.cli.options import AllowImports, Progress, Set, read_overrides

if TYPE_CHECKING:
    from twinserve.experiments.validation.cost_source import CostSource
    from twinserve.experiments.validation.run_folders import RunReader


def validate(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="REAL_RUN", help="OUT/<run id> of `run --backend real --decisions`, or a folder of such."
        ),
    ],
    calibration: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A calibration: a YAML file or packaged name; else the run's sim.cost_model."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Results; REAL_RUN/validation/COST_MODEL when not given.")
    ] = None,
    settings: Set = None,
    allow_imports: AllowImports = False,
    progress: Progress = True,
) -> int:
    """Replay a real run's decisions byte for byte, and show where the errors of its simulation come from.

    Exit status 1 when the replay decides otherwise, or a point of a folder could not be validated.
    """
    from twinserve.experiments.errors import ConfigError
    from twinserve.experiments.files.names import CONFIG
    from twinserve.experiments.files.probe import is_file, is_folder
    from twinserve.experiments.validation.cost_source import CostSource
    from twinserve.experiments.validation.recorded import read_recorded_run

    overrides, source = read_overrides(settings), CostSource(calibration=calibration)
    source.check()
    if not is_folder(folder):
        raise ConfigError("is no folder; give OUT/<run id>, or a folder of such folders", file=folder)
    read = partial(read_recorded_run, overrides=overrides, allow_imports=allow_imports)
    if is_file(folder / CONFIG):
        return _validate_run(folder, source, out, read, progress)
    return _validate_folder(folder, source, out, read, progress)


def _validate_run(folder: Path, source: CostSource, out: Path | None, read: RunReader, progress: bool) -> int:
    from twinserve.experiments.errors import RunError
    from twinserve.experiments.files.probe import below
    from twinserve.experiments.files.progress import LateProgress
    from twinserve.experiments.validation.validate import validate_run
    from twinserve.experiments.validation.validation_table import figure_table, parity_lines, step_table
    from twinserve.experiments.validation.write import write_validation

    with LateProgress(folder.name, "simulations", enabled=progress) as bar:
        validation = validate_run(read(folder), source, bar.update)
    paths = write_validation(validation, out or below(folder, "validation", validation.cost_model))
    for line in parity_lines(validation):
        typer.echo(line)
    _print(figure_table(validation), step_table(validation))
    for warning in validation.warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(f"Results in {paths[0].parent}")
    if validation.failure is not None:
        raise RunError(validation.failure, file=folder)
    return 0


def _validate_folder(folder: Path, source: CostSource, out: Path | None, read: RunReader, progress: bool) -> int:
    from twinserve.experiments.files.names import VALIDATION_SUMMARY
    from twinserve.experiments.files.probe import below
    from twinserve.experiments.files.progress import LateProgress
    from twinserve.experiments.validation.points_table import point_table
    from twinserve.experiments.validation.run_folders import validate_folder

    out = out or below(folder, "validation", source.label)
    with LateProgress(folder.name, "runs", enabled=progress) as bar:
        outcome = validate_folder(folder, source, out, read, bar.update)
    if outcome.points:
        _print(point_table(outcome))
        typer.echo(
            f"{len(outcome.points)} of {outcome.num_real} real runs validated; summary in {out / VALIDATION_SUMMARY}"
        )
    if outcome.num_simulated:
        typer.echo(f"{outcome.num_simulated} simulated runs left out")
    for point, error in outcome.failed:
        typer.echo(f"failed: {error if str(point) in error else f'{point}: {error}'}", err=True)
    return 1 if outcome.failed else 0


def _print(*tables: Any) -> None:
    from rich.console import Console

    console = Console()
    for table in tables:
        console.print(table)
