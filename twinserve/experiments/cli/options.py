"""Options that several subcommands share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from twinserve.experiments.settings.overrides import Override, parse_override

Backend: TypeAlias = Annotated[str | None, typer.Option(metavar="sim|real", help="Replaces `backend` of the YAML.")]
Set: TypeAlias = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replaces a value: engine.max_num_seqs=32.")
]
Out: TypeAlias = Annotated[Path, typer.Option(metavar="DIR", help="The folder that run folders are made in.")]
Progress: TypeAlias = Annotated[bool, typer.Option("--progress/--no-progress", help="Show a progress bar.")]

AllowImports: TypeAlias = Annotated[
    bool,
    typer.Option("--allow-imports", help="Import policies that a received file names: this runs the code it names."),
]


def read_overrides(
    settings: Iterable[str] | None, *, backend: str | None = None, decisions: bool = False
) -> tuple[Override, ...]:
    """The overrides that a command line asks for; options with a name of their own win over ``--set``."""
    overrides = [parse_override(text) for text in settings or ()]
    if backend is not None:
        overrides.append(Override(key="backend", value=backend, source=f"--backend {backend}"))
    if decisions:
        overrides.append(Override(key="record.decisions", value=True, source="--decisions"))
    return tuple(overrides)
