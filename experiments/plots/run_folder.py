"""Reads a run folder back: its record, configuration and result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.errors import ConfigError
from experiments.parquet import read_columns
from experiments.yaml_loader import read_yaml
from sched_core.record import RunRecord


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
    requests, steps, tokens = (_columns(folder / f"{name}.parquet") for name in ("requests", "steps", "tokens"))
    ends = [*steps["end_ns"][-1:], *(time for time in requests["finish_ns"] if time is not None)]
    record = RunRecord(
        requests=dict(requests), steps=dict(steps), tokens=dict(tokens), plans=(), stats={}, end_ns=max(ends, default=0)
    )
    return RunFolder(record=record, config=read_config(folder), result=_read_json(folder / "result.json"))


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration of a run; empty where it is missing."""
    path = folder / "config.yaml"
    return read_yaml(path) if path.is_file() else {}


def _columns(path: Path) -> dict[str, list[Any]]:
    from pyarrow import ArrowException

    try:
        return read_columns(path)
    except FileNotFoundError:
        raise ConfigError("does not exist; is this the folder of a run?", file=path) from None
    except (OSError, ArrowException) as error:
        raise ConfigError(f"cannot be read ({error}); run the experiment again", file=path) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read ({error}); run the experiment again with --force", file=path) from error
    return data if isinstance(data, dict) else {}
