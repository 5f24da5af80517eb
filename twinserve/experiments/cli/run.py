"""``twinserve run``: runs one experiment and prints its result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from twinserve.experiments.cli.options import Backend, Out, Progress, Set, read_overrides


def run(
    config: Annotated[str, typer.Argument(help="A YAML file, or the name of a packaged one (note_4090/v1_rate2).")],
    backend: Backend = None,
    settings: Set = None,
    out: Out = Path("out"),
    check: Annotated[bool, typer.Option("--check", help="Verify the scheduler's invariants at every step.")] = False,
    decisions: Annotated[bool, typer.Option("--decisions", help="Keep every plan: the decision log.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Run again even if this run is finished in OUT.")] = False,
    progress: Progress = True,
) -> None:
    """Run one experiment and print its results; a run that is finished in OUT is shown, not repeated."""
    from twinserve.experiments.config.load import load_experiment
    from twinserve.experiments.files.progress import LateProgress
    from twinserve.experiments.report import format_table
    from twinserve.experiments.run import run_experiment

    experiment = load_experiment(config, read_overrides(settings, backend=backend, decisions=decisions))
    with LateProgress(experiment.config.name, "requests", enabled=progress) as bar:
        finished = run_experiment(experiment, out, force=force, check=check, on_progress=bar.update)
    if finished.replaced is not None:
        typer.echo(f"note: {finished.replaced}", err=True)
    typer.echo(format_table(finished.result))
    note = " (was already there; --force runs it again)" if finished.was_there else ""
    typer.echo(f"Results in {finished.folder}{note}")
    _require_a_served_request(finished.result, experiment.source)


def _require_a_served_request(result: Mapping[str, Any], source: str) -> None:
    """
    Raises:
        RunError: every request failed.
    """
    from twinserve.experiments.errors import RunError

    if result["failed"] and not any(result[name] for name in ("completed", "aborted", "unfinished")):
        reasons = ", ".join(f"{reason} ({count})" for reason, count in result["failures_by_reason"].items())
        remedy = "see engine.max_model_len, the KV pool and the lengths of workload"
        raise RunError(f"no request was served, all {result['failed']} failed: {reasons}; {remedy}", file=source)
