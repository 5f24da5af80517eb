"""``twinserve list``: what can be named in a YAML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from inspect import Parameter
from typing import Annotated

import typer


class Topic(StrEnum):
    POLICIES = "policies"
    MODELS = "models"
    HARDWARE = "hardware"
    WORKLOADS = "workloads"
    CALIBRATIONS = "calibrations"
    CONFIGS = "configs"


def show(topic: Annotated[Topic, typer.Argument(help="What to list.")]) -> None:
    """List the policies, models, hardware, workloads, calibrations or configurations that come with the package."""
    for line in _lines(topic):
        typer.echo(line)


def _lines(topic: Topic) -> Iterator[str]:
    from twinserve.experiments.settings.paths import packaged_experiments, packaged_names

    if topic is Topic.POLICIES:
        yield from _policies()
    elif topic is Topic.WORKLOADS:
        yield from _workloads()
    elif topic is Topic.CONFIGS:
        yield from packaged_experiments()
    else:
        yield from packaged_names(topic)


def _policies() -> Iterator[str]:
    from twinserve.sched_core.policies.choice import parameters_of
    from twinserve.sched_core.policies.registry import BUILT_IN

    for seam, known in BUILT_IN.items():
        yield f"engine.{seam}: {', '.join(known)}"
        for name, maker in known.items():
            for parameter, found in parameters_of(maker).items():
                yield f"engine.{seam}.{parameter}: {name} only, {_default(found)}"


def _default(parameter: Parameter) -> str:
    required = parameter.default is Parameter.empty
    return "required" if required else f"{json.dumps(parameter.default)} unless given"


def _workloads() -> Iterator[str]:
    from pydantic import TypeAdapter

    from twinserve.experiments.workloads import WorkloadConfig

    schema = TypeAdapter(WorkloadConfig).json_schema()
    for kind, reference in sorted(schema["discriminator"]["mapping"].items()):
        section = schema["$defs"][reference.rsplit("/", 1)[-1]]
        formats = section["properties"].get("format", {}).get("enum")
        yield f"workload.kind: {kind}" + (f" (format: {', '.join(formats)})" if formats else "")
