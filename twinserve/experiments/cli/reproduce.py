"""``twinserve reproduce``: simulates published measurements and compares the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinserve.experiments.cli.options import Progress
from twinserve.experiments.errors import RunError

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

    from twinserve.experiments.plots.style import save
    from twinserve.experiments.reproduce.note import is_reproduced, reproduce_note
    from twinserve.experiments.reproduce.note_plot import plot_note
    from twinserve.experiments.reproduce.note_table import note_table

    comparisons = reproduce_note()
    Console(width=max(Console().width, 132)).print(note_table(comparisons))
    typer.echo(f"Picture in {save(plot_note(comparisons), plot)}")
    missed = [comparison.run for comparison in comparisons if not is_reproduced(comparison)]
    if missed:
        raise RunError(f"{', '.join(missed)}: mean error above 2.5 % or a figure off by more than 10 %")


@reproduce.command("vllm-4090")
def vllm_4090(
    data: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Holds RTX4090_Llama-3.1-8B and profile_RTX4090_Llama-3.1-8B of LLMServingSim."
        ),
    ],
    plot: Annotated[Path, typer.Option(metavar="FILE", help="Where the picture goes.")] = Path("out/vllm_4090.png"),
    write: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the calibration: a YAML file.")] = None,
    progress: Progress = True,
) -> None:
    """vLLM's 300 requests on an RTX 4090 from kernel times; the host gap is fitted to 100, the others are compared."""
    from rich.console import Console

    from twinserve.experiments.config.calibration import check_destination, write_calibration
    from twinserve.experiments.files.progress import LateProgress
    from twinserve.experiments.plots.style import save
    from twinserve.experiments.reproduce.vllm_4090 import MeasuredWorkload, compare_times, fit_vllm, is_within_bounds
    from twinserve.experiments.reproduce.vllm_data import read_measured
    from twinserve.experiments.reproduce.vllm_report import plot_vllm, vllm_table

    if write is not None:
        check_destination(write, "--write")
    measured, workload = read_measured(data), MeasuredWorkload.load(data)
    with LateProgress("reproduce vllm-4090", "simulations", enabled=progress) as bar:
        calibration = fit_vllm(data, workload, measured, bar)
    simulated = workload.times(calibration)
    comparison = compare_times(measured, simulated)
    Console().print(vllm_table(comparison))
    typer.echo(f"Host gap fitted to the first 100 requests: {calibration.host_gap.base_ms * 1e3:.0f} us")
    typer.echo(f"Picture in {save(plot_vllm(measured, simulated), plot)}")
    if write is not None:
        write_calibration(calibration, write)
        typer.echo(f"Calibration in {write}")
    if not is_within_bounds(comparison):
        raise RunError("mean TTFT, TTFT p99 or TPOT p99 of the last 200 requests is off by more than 3 %")
