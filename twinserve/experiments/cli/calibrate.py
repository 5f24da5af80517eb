"""``twinserve calibrate``: fits a calibration file to measured steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from twinserve.experiments.calibrate.outcome import Outcome


def calibrate(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER...", help="Profiles, real runs, or LLMServingSim's kernel times."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The calibration: a YAML file.")],
    held_out: Annotated[
        list[Path] | None,
        typer.Option("--held-out", metavar="RUN", help="Judge on the steps of this run, fit none; may be repeated."),
    ] = None,
    num_blocks: Annotated[
        int | None, typer.Option(min=1, help="KV blocks of the engine; needed for kernel times.")
    ] = None,
) -> None:
    """Fit step times to measured steps; writes FILE (an older one is replaced) and a picture beside it."""
    from twinserve.experiments.calibrate.outcome import calibrate as fit
    from twinserve.experiments.calibrate.picture import plot_outcome
    from twinserve.experiments.config.calibration import check_destination, write_calibration
    from twinserve.experiments.plots.style import save

    check_destination(out, "-o")
    replaced = out.exists()
    outcome = fit(folders, held_out or (), num_blocks)
    _show(outcome)
    picture = save(plot_outcome(outcome), out.with_suffix(".png"))
    write_calibration(outcome.calibration, out)  # last: a disk that is full by now leaves the older file
    typer.echo(f"Picture in {picture}")
    typer.echo(f"Calibration in {out}{' (replaced)' if replaced else ''}; use it as")
    typer.echo(f"  sim: {{cost_model: {{kind: calibration, file: {out}}}}}")


def _show(outcome: Outcome) -> None:
    from rich.console import Console

    from twinserve.experiments.calibrate import calibration_table as tables

    console = Console()
    console.print(tables.terms_table(outcome))
    console.print(tables.gap_line(outcome.calibration.host_gap), highlight=False)
    for line in tables.throttle_lines(outcome.calibration.throttles):
        console.print(line, highlight=False)
    for table in (tables.errors_table(outcome), tables.worst_table(outcome)):
        console.print(table)
    for note in outcome.notes:
        typer.echo(f"Note: {note}")
