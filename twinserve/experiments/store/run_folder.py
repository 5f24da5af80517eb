"""Reads a run folder back: its record, configuration and result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from twinserve.experiments.files import strict_json
from twinserve.experiments.files.parquet import check_columns, read_columns, readable
from twinserve.experiments.settings.yaml_loader import read_yaml
from twinserve.run_core.record import STEP_COLUMNS, RunRecord

NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "requests": (
            *("request_id", "prompt_len", "arrival_ns", "sent_ns", "first_scheduled_ns", "first_token_ns"),
            *("last_token_ns", "finish_ns", "output_len", "num_cached_tokens", "finish_reason", "refusal"),
        ),
        "steps": STEP_COLUMNS,
        "tokens": ("request_id", "time_ns"),
    }
)
"""What is read of the files of every run."""
ALWAYS_KNOWN = frozenset(
    {*STEP_COLUMNS, "request_id", "prompt_len", "arrival_ns", "sent_ns", "output_len", "time_ns"}
) - {"device_ns"}
"""Columns without nulls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """What figures are drawn from. ``config`` and ``result`` are as written, empty where the file is missing."""

    record: RunRecord
    config: dict[str, Any]
    result: dict[str, Any]


def is_run_folder(folder: Path) -> bool:
    return (folder / "requests.parquet").is_file()


def read_run_folder(folder: Path) -> RunFolder:
    """The run in ``folder``; its decision log and counters stay on disk.

    Raises:
        ConfigError: a file of records is missing or unreadable.
    """
    requests, steps, tokens = (_columns(folder, name) for name in NEEDED)
    ends = [*steps["end_ns"][-1:], *(time for time in requests["finish_ns"] if time is not None)]
    record = RunRecord(
        requests=dict(requests), steps=dict(steps), tokens=dict(tokens), plans=(), stats={}, end_ns=max(ends, default=0)
    )
    result = folder / "result.json"
    known = strict_json.read_object(result, "run the experiment again with --force") if result.is_file() else {}
    return RunFolder(record=record, config=read_config(folder), result=known)


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration of a run; empty where it is missing."""
    path = folder / "config.yaml"
    return read_yaml(path) if path.is_file() else {}


def _columns(folder: Path, name: str) -> dict[str, list[Any]]:
    path = folder / f"{name}.parquet"
    with readable(path, "run the experiment again"):
        columns = read_columns(path)
    check_columns(columns, NEEDED[name], ALWAYS_KNOWN, path)
    return columns
