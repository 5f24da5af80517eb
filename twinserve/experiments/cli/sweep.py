"""``twinserve sweep``: runs many experiments and writes one summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinserve.experiments.cli.options import Backend, Progress, Set, read_overrides

if TYPE_CHECKING:
    from twinserve.experiments.sweep.points import Sweep
    from twinserve.experiments.sweep.run import SweepOutcome


def sweep(
    config: Annotated[str, typer.Argument(help="A sweep YAML, or the name of a packaged one (sweeps/token_budget).")],
    backend: Backend = None,
    settings: Set = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Runs and summary; out/NAME when not given.")] = None,
    executor: Annotated[
        str | None, typer.Option(metavar="processes|serial|dask|ray", help="Replaces `executor.kind` of the YAML.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Replaces `executor.workers` of the YAML.")] = None,
    plots: Annotated[bool | None, typer.Option("--plots/--no-plots", help="Replaces `report.plots`.")] = None,
    progress: Progress = True,
) -> int:
    """Run every point of a sweep that is not finished in DIR; write summary.csv and comparison plots.

    It can be interrupted; run it again to continue. Exit status 1 when a point failed.
    """
    from twinserve.experiments.files.probe import below
    from twinserve.experiments.files.progress import LateProgress
    from twinserve.experiments.settings.overrides import Override
    from twinserve.experiments.sweep.points import load_sweep
    from twinserve.experiments.sweep.run import run_sweep

    wanted = (("executor.kind", executor), ("executor.workers", workers), ("report.plots", plots))
    own = [Override(key=key, value=value, source="command line") for key, value in wanted if value is not None]
    loaded = load_sweep(config, read_overrides(settings, backend=backend), own)
    folder = out or below(Path("out"), loaded.name)
    with LateProgress(loaded.name, "runs", enabled=progress) as bar:
        outcome = run_sweep(loaded, folder, bar.update)
    _report(loaded, outcome, folder)
    return 1 if outcome.failed else 0


def _report(loaded: Sweep, outcome: SweepOutcome, folder: Path) -> None:
    from twinserve.experiments.errors import one_line
    from twinserve.experiments.files.names import SUMMARY
    from twinserve.experiments.sweep.sweep_table import format_sweep

    for problem in outcome.replaced:
        typer.echo(f"note: {problem}", err=True)
    typer.echo(format_sweep(outcome.rows, loaded.swept))
    found = f", {outcome.num_found} of them were already there" if outcome.num_found else ""
    done = f"{len(outcome.finished)} of {len(loaded.points)} points finished"
    typer.echo(f"{done}{found}; summary in {folder / SUMMARY}")
    if loaded.config.report.plots and loaded.swept and outcome.finished:
        _plot(folder)
    for point, error in outcome.failed:
        typer.echo(one_line(f"failed: {point.label()}: {error}"), err=True)


def _plot(folder: Path) -> None:
    from twinserve.experiments.errors import ConfigError
    from twinserve.experiments.files.probe import below
    from twinserve.experiments.plots.folder import save_figures

    try:
        for path in save_figures(folder, below(folder, "plots")):
            typer.echo(f"plot: {path}")
    except ConfigError as error:
        typer.echo(f"no plots: {error.message}", err=True)
