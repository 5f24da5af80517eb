"""``twinserve reproduce``: published measurements against their simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.errors import RunError

reproduce = typer.Typer(help="Simulate published measurements and compare.", no_args_is_help=True)


@reproduce.callback()
def _describe() -> None:
    """Simulate published measurements and compare."""


@reproduce.command()
def note(
    plot: Annotated[Path, typer.Option(metavar="FILE", help="Where the picture goes.")] = Path("out/note.png"),
) -> None:
    """The four runs of the nano-vllm benchmark on an RTX 4090: published, simulated, error; fails beyond the bounds."""
    from rich.console import Console

    from experiments.reproduce.note import is_reproduced, reproduce_note
    from experiments.reproduce.note_plot import plot_note
    from experiments.reproduce.note_table import note_table

    comparisons = reproduce_note()
    Console(width=max(Console().width, 132)).print(note_table(comparisons))
    typer.echo(f"Picture in {plot_note(comparisons, plot)}")
    missed = [comparison.run for comparison in comparisons if not is_reproduced(comparison)]
    if missed:
        raise RunError(f"{', '.join(missed)}: mean error above 2.5 % or a figure off by more than 10 %")
