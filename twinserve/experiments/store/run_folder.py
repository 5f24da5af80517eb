"""Reads a run folder: its record, configuration, result, manifest and decision log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from twinserve.experiments.files.names import CONFIG, DECISIONS, MANIFEST, REQUESTS, RESULT, STEPS, TOKENS
from twinserve.experiments.files.parquet import DECISION_COLUMNS, HIT_COLUMNS, check_columns, read_columns, readable
from twinserve.experiments.settings.yaml_loader import read_yaml
from twinserve.experiments.store.json_object import read_object
from twinserve.experiments.store.list_columns import read_lists
from twinserve.experiments.store.step_columns import StepColumns, read_step_columns
from twinserve.run_core.record import STEP_COLUMNS, Columns, RunRecord

RUN_AGAIN = "run the experiment again with --force"

NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        REQUESTS: (
            *("request_id", "prompt_len", "arrival_ns", "sent_ns", "first_scheduled_ns", "first_token_ns"),
            *("last_token_ns", "finish_ns", "output_len", "num_cached_tokens", "finish_reason", "refusal"),
        ),
        STEPS: STEP_COLUMNS,
        TOKENS: ("request_id", "time_ns"),
    }
)
"""The columns that are read from the files of every run."""
ALWAYS_KNOWN = frozenset(
    {*STEP_COLUMNS, "request_id", "prompt_len", "arrival_ns", "sent_ns", "output_len", "time_ns"}
) - {"device_ns"}
"""Columns without nulls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """A run as stored. ``config`` and ``result`` are as written, empty where the file is missing."""

    record: RunRecord
    config: dict[str, Any]
    result: dict[str, Any]


def is_run_folder(folder: Path) -> bool:
    """Whether ``folder`` holds the record of a run."""
    return (folder / REQUESTS).is_file()


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
    result = read_result(folder) if (folder / RESULT).is_file() else {}
    return RunFolder(record=record, config=read_config(folder), result=result)


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration of a run; empty where it is missing."""
    path = folder / CONFIG
    return read_yaml(path) if path.is_file() else {}


def read_result(folder: Path) -> dict[str, Any]:
    """The figures of a finished run.

    Raises:
        ConfigError: the file is missing or damaged.
    """
    return read_object(folder / RESULT, RUN_AGAIN)


def read_manifest(folder: Path, remedy: str = RUN_AGAIN) -> dict[str, Any]:
    """The manifest of a run or profile; ``remedy`` says what to do about a damaged one.

    Raises:
        ConfigError: the file is missing or damaged.
    """
    return read_object(folder / MANIFEST, remedy)


def read_run_steps(folder: Path, needed: Sequence[str]) -> StepColumns:
    """The steps of a run, which must have the columns ``needed``.

    Raises:
        ConfigError: the file is missing or damaged, lacks a column or holds no steps.
    """
    return read_step_columns(folder / STEPS, needed)


def read_decisions(folder: Path) -> Columns | None:
    """The decision log of a run; None where it kept none.

    Raises:
        ConfigError: the file is damaged.
    """
    path = folder / DECISIONS
    return read_lists(path, DECISION_COLUMNS, HIT_COLUMNS) if path.exists() else None


def find_run_folders(folder: Path) -> list[Path]:
    """Run folders below ``folder``, finished or not: those of one sweep, or of several beside each other."""
    return sorted(path.parent for pattern in (f"*/{CONFIG}", f"*/*/{CONFIG}") for path in folder.glob(pattern))


def _columns(folder: Path, name: str) -> dict[str, list[Any]]:
    path = folder / name
    with readable(path, "run the experiment again"):
        columns = read_columns(path)
    check_columns(columns, NEEDED[name], ALWAYS_KNOWN, path)
    return columns
