"""``twinserve plot``: draws the figures of a run, a sweep or a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def plot(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of a run, a sweep (with its summary) or a profile.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the figures go; DIR/plots when not given.")
    ] = None,
) -> None:
    """Draw latency CDFs and a timeline of a run, p99 latencies of a sweep, or step times of a profile."""
    from twinserve.experiments.files.probe import below
    from twinserve.experiments.plots.folder import save_figures

    for path in save_figures(folder, below(folder, "plots") if out is None else out):
        typer.echo(path)
