"""Builds the ``Workload`` that the ``workload`` section of a configuration describes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import Field

from twinserve.experiments.workloads.assemble import assemble
from twinserve.experiments.workloads.fields import require_file
from twinserve.experiments.workloads.length_limits import apply_limits
from twinserve.experiments.workloads.lengths import EmpiricalLength
from twinserve.experiments.workloads.note_bench import NoteBenchConfig, note_rows
from twinserve.experiments.workloads.request_columns import RequestColumns
from twinserve.experiments.workloads.servegen import ServeGenConfig, servegen_rows
from twinserve.experiments.workloads.streams import RandomStreams
from twinserve.experiments.workloads.synthetic import SyntheticConfig, synthetic_rows
from twinserve.experiments.workloads.trace import TraceConfig, trace_rows
from twinserve.experiments.workloads.workload import Workload

WorkloadConfig: TypeAlias = Annotated[
    SyntheticConfig | NoteBenchConfig | TraceConfig | ServeGenConfig, Field(discriminator="kind")
]


def build_workload(config: WorkloadConfig, *, seed: int, repeat: int, max_model_len: int, base_dir: Path) -> Workload:
    """Draw or read the requests.

    The same arguments and files give the same workload. ``base_dir`` is where relative paths start from.

    Raises:
        ConfigError: an input file is missing or bad, or no request is left.
    """
    streams = RandomStreams(seed, repeat)
    return assemble(_rows(config, streams, base_dir), config, streams, max_model_len)


def workload_files(config: WorkloadConfig, base_dir: Path) -> tuple[Path, ...]:
    """Every file that ``build_workload`` would read.

    Raises:
        ConfigError: one of them does not exist.
    """
    if isinstance(config, TraceConfig):
        trace = require_file(config.path, base_dir, "workload.path")
        drawn = config.output_len
        if isinstance(drawn, EmpiricalLength):
            return trace, require_file(drawn.path, base_dir, "workload.output_len.path")
        return (trace,)
    if isinstance(config, ServeGenConfig):
        return tuple(path for pair in config.client_files(base_dir).values() for path in pair)
    if isinstance(config, NoteBenchConfig):
        return ()
    lengths = {"input_len": config.input_len, "output_len": config.output_len}
    if config.sessions is not None:
        lengths["sessions.turns"] = config.sessions.turns
    return tuple(
        require_file(one.path, base_dir, f"workload.{key}.path")
        for key, one in lengths.items()
        if isinstance(one, EmpiricalLength)
    )


def _rows(config: WorkloadConfig, streams: RandomStreams, base_dir: Path) -> RequestColumns:
    if isinstance(config, TraceConfig):
        return trace_rows(config, streams, base_dir)
    if isinstance(config, ServeGenConfig):
        return apply_limits(servegen_rows(config, streams, base_dir), config)
    if isinstance(config, NoteBenchConfig):
        return apply_limits(note_rows(config, streams), config)
    return apply_limits(synthetic_rows(config, streams, base_dir), config)
