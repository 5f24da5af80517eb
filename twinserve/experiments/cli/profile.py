"""``twinserve profile``: measures step times of the real engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinserve.experiments.cli.options import Out, Progress, Set, read_overrides

if TYPE_CHECKING:
    from twinserve.experiments.profile.run import FinishedProfile


def profile(
    config: Annotated[str, typer.Argument(help="A YAML file, or the name of a packaged one (h200/note_qwen3_8b).")],
    settings: Set = None,
    out: Out = Path("profiles"),
    max_seconds: Annotated[
        float, typer.Option(min=1, help="Measure for at most this long; starting the engine comes on top.")
    ] = 180.0,
    visits: Annotated[int, typer.Option(min=1, max=100, help="Visits to each shape, of three measured steps.")] = 4,
    density: Annotated[
        float,
        typer.Option(min=0, max=10, help="Scales the number of drawn step shapes; 0.1 for a quick look."),
    ] = 1.0,
    force: Annotated[bool, typer.Option("--force", help="Measure anew even if this profile is in OUT.")] = False,
    progress: Progress = True,
) -> None:
    """Measure how long the steps of CONFIG's engine take on this device: the data of a calibration.

    Only the sections model, engine, real and the seed matter. It can be interrupted; run it again to continue.
    """
    from twinserve.experiments.files.progress import LateProgress
    from twinserve.experiments.profile.run import ProfileSettings, load_profiled, run_profile

    experiment = load_profiled(config, read_overrides(settings))
    wanted = ProfileSettings(max_seconds=max_seconds, num_visits=visits, density=density)
    with LateProgress("profile", "measurements", enabled=progress) as bar:
        finished = run_profile(experiment, out, wanted, force=force, announce=typer.echo, on_progress=bar.update)
    _report(finished)


def _report(finished: FinishedProfile) -> None:
    from rich.console import Console

    from twinserve.experiments.files.names import PROFILE_PICTURE
    from twinserve.experiments.plots.profile import plot_profile
    from twinserve.experiments.plots.style import save
    from twinserve.experiments.report.profile_table import profile_table
    from twinserve.experiments.store.profile_folder import read_profile

    manifest, folder = finished.manifest, finished.folder
    steps = read_profile(folder)
    Console().print(profile_table(steps, manifest))
    missed = manifest.get("num_shapes", 0) - manifest.get("num_shapes_measured", 0)
    if missed:
        typer.echo(f"{missed} of {manifest['num_shapes']} shapes were not reached; raise --max-seconds", err=True)
    typer.echo(f"Picture in {save(plot_profile(steps, manifest), folder / PROFILE_PICTURE)}")
    note = " (was already there; --force measures anew)" if finished.was_there else ""
    typer.echo(f"Profile in {folder}{note}")
