"""``twinserve calibrate``: measured steps to a calibration file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
    from rich.console import Console

    from twinserve.experiments.calibrate.outcome import calibrate as fit
    from twinserve.experiments.calibrate.picture import plot_outcome
    from twinserve.experiments.calibrate.table import errors_table, gap_line, terms_table, throttle_lines, worst_table
    from twinserve.experiments.config.calibration import check_destination, write_calibration
    from twinserve.experiments.plots.style import save

    check_destination(out, "-o")
    replaced = out.exists()
    outcome = fit(folders, held_out or (), num_blocks)
    console = Console()
    console.print(terms_table(outcome))
    console.print(gap_line(outcome.calibration.host_gap), highlight=False)
    for line in throttle_lines(outcome.calibration.throttles):
        console.print(line, highlight=False)
    for table in (errors_table(outcome), worst_table(outcome)):
        console.print(table)
    for note in outcome.notes:
        typer.echo(f"Note: {note}")
    picture = save(plot_outcome(outcome), out.with_suffix(".png"))
    write_calibration(outcome.calibration, out)  # last: a disk that is full by now leaves the older file
    typer.echo(f"Picture in {picture}")
    typer.echo(f"Calibration in {out}{' (replaced)' if replaced else ''}; use it as")
    typer.echo(f"  sim: {{cost_model: {{kind: calibration, file: {out}}}}}")
