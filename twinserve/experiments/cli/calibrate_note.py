"""``twinserve calibrate-note``: fits the step times of the note's simulations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinserve.experiments.cli.options import Progress
from twinserve.experiments.errors import RunError

if TYPE_CHECKING:
    from twinserve.experiments.reproduce.note_fit import Fit


def calibrate_note(
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the files go; the packaged calibrations by default.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; all cores by default.")] = None,
    progress: Progress = True,
) -> None:
    """Fit step times to the note's two published runs at 2 requests/s, from three starts that must agree within 2 %."""
    from twinserve.experiments.config.calibration import write_calibration
    from twinserve.experiments.files.atomic import write_files
    from twinserve.experiments.files.progress import LateProgress
    from twinserve.experiments.reproduce.note_fit import (
        ENGINES,
        MAX_DISAGREEMENT,
        STARTS,
        calibration_of,
        disagreement,
        fit,
    )
    from twinserve.experiments.settings.paths import packaged_configs
    from twinserve.experiments.sweep.executors import in_processes

    folder = packaged_configs() / "calibrations" if out is None else out
    write_files(folder, {})  # finds a wrong --out before the work, not after it
    tasks = [(engine, start) for start in STARTS for engine in ENGINES]
    fits = []
    with LateProgress("calibrate-note", "fits", enabled=progress) as bar:
        bar.update(0, len(tasks))
        for done in in_processes(fit, tasks, workers=workers):
            fits.append(done)
            bar.update(len(fits), len(tasks))
    for engine in ENGINES:
        mine = sorted((each for each in fits if each.engine == engine), key=lambda each: each.start)
        for each in mine:
            typer.echo(_line(each))
        if disagreement(mine) > MAX_DISAGREEMENT:
            raise RunError(f"{engine}: the starts disagree by {disagreement(mine):.1%}; nothing was written for it")
        path = folder / f"note-rtx-4090-{engine}.yaml"
        write_calibration(calibration_of(mine), path)
        typer.echo(f"{engine}: {path}")


def _line(fit: Fit) -> str:
    floor_ms, per_token_ms = fit.minimum.values
    return (
        f"{fit.engine} from {fit.start[0]:g} ms, {fit.start[1]:g} ms/token: floor {floor_ms:g} ms, "
        f"{per_token_ms:g} ms/token, mean error {fit.minimum.loss:.2%} ({fit.minimum.num_evaluations} simulations)"
    )
