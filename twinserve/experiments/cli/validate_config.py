"""``twinserve validate-config``: checks a configuration without running it."""

from __future__ import annotations

from typing import Annotated

import typer

from twinserve.experiments.cli.options import AllowImports, Backend, Set, read_overrides
from twinserve.experiments.settings.overrides import Override


def validate_config(
    config: Annotated[str, typer.Argument(help="An experiment or sweep: a YAML file, or the name of a packaged one.")],
    backend: Backend = None,
    settings: Set = None,
    allow_imports: AllowImports = False,
) -> None:
    """Check a YAML file, its policies and its input files; nothing is run, and no code is imported unless allowed."""
    from twinserve.experiments.settings.paths import find_config
    from twinserve.experiments.settings.yaml_loader import read_yaml

    overrides = read_overrides(settings, backend=backend)
    path = find_config(config)
    if "base" in read_yaml(path):
        from twinserve.experiments.backends.scheduler import engine_policies
        from twinserve.experiments.sweep.points import load_sweep

        sweep = load_sweep(config, overrides)
        for point in sweep.points:
            if not allow_imports:
                point.experiment.refuse_imports()
            with point.experiment.errors_name_source():
                engine_policies(point.experiment)
        typer.echo(f"{path}: valid; a sweep of {len(sweep.points)} runs over {', '.join(sweep.swept) or 'nothing'}")
        return
    _validate_experiment(config, overrides, allow_imports)


def _validate_experiment(config: str, overrides: tuple[Override, ...], allow_imports: bool) -> None:
    from twinserve.experiments.backends.real import check_real
    from twinserve.experiments.backends.simulated import build_simulation
    from twinserve.experiments.config.combinations import combination_warnings
    from twinserve.experiments.config.load import load_experiment
    from twinserve.experiments.identity import identify
    from twinserve.experiments.run import build_requests

    experiment = load_experiment(config, overrides, allow_imports=allow_imports)
    with experiment.errors_name_source():
        workload = build_requests(experiment)
        identify(experiment, code="")  # finds missing input files
        parts = build_simulation(experiment) if experiment.config.backend == "sim" else None
        if parts is None:
            check_real(experiment)
    summary = f"{experiment.config.name}: {len(workload.requests)} requests, backend {experiment.config.backend}"
    if parts is not None:
        summary += f", {parts.blocks.count} KV blocks ({parts.blocks.source})"
    num_blocks = experiment.config.engine.num_gpu_blocks_override if parts is None else parts.blocks.count
    impossible = () if num_blocks is None else combination_warnings(experiment.config.engine, num_blocks, workload)
    for warning in (*workload.warnings, *impossible):
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(f"{experiment.source}: valid; {summary}")
