"""Reads traces from files with one JSON object a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinserve.experiments.workloads.formats.reading import Columns, read_json_lines, seconds, token_count, whole_number
from twinserve.experiments.workloads.formats.trace_table import Table, since_first
from twinserve.experiments.workloads.token_streams import MAX_HASH_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The keys of a line."""

    timestamp: str = "timestamp"
    input_length: str = "input_length"
    output_length: str = "output_length"
    hash_ids: str = "hash_ids"


def read_mooncake(path: Path) -> Table:
    """Mooncake: ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids`` of 512-token blocks."""
    return read_timed(path, Labels(), unit_ns=1e6, hash_block_size=512)


def read_timed(path: Path, labels: Labels, *, unit_ns: float, hash_block_size: int) -> Table:
    """A timed trace with keys ``labels``, times in units of ``unit_ns``; rows may lack hash ids."""
    parsers = {labels.timestamp: seconds, labels.input_length: token_count, labels.output_length: token_count}
    rows = read_json_lines(path, {**parsers, labels.hash_ids: _hash_ids})
    hash_ids = [ids or () for ids in rows.columns[labels.hash_ids]]
    table = Table(
        path=path,
        lines=rows.lines,
        time_ns=since_first(rows, labels.timestamp, unit_ns),
        input_len=_lengths(rows, labels.input_length),
        output_len=_lengths(rows, labels.output_length),
        hash_ids=hash_ids if any(hash_ids) else None,
        hash_block_size=hash_block_size,
    )
    _check_hash_ids(table, labels.hash_ids)
    return table


def read_llmservingsim_json(path: Path) -> Table:
    """LLMServingSim: ``input_toks``, ``output_toks``, ``arrival_time_ns``."""
    parsers = {"arrival_time_ns": whole_number, "input_toks": token_count, "output_toks": token_count}
    rows = read_json_lines(path, parsers)
    return Table(
        path=path,
        lines=rows.lines,
        time_ns=since_first(rows, "arrival_time_ns", 1),
        input_len=_lengths(rows, "input_toks"),
        output_len=_lengths(rows, "output_toks"),
    )


def _hash_ids(value: Any) -> Sequence[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item <= MAX_HASH_ID for item in value):
        raise ValueError("expected a list of whole numbers from 0 to 2**60 - 1")
    return value


def _check_hash_ids(table: Table, name: str) -> None:
    """One id per full block, and one more or none for the partial block at the end.

    Raises:
        ConfigError: naming the first line where that is not so.
    """
    if table.hash_ids is None:
        return
    given = np.array([len(ids) for ids in table.hash_ids], dtype=np.int64)
    full, rest = np.divmod(table.input_len, table.hash_block_size)
    wrong = (given < full) | (given > full + (rest > 0))
    size = table.hash_block_size
    table.refuse(wrong, f"{name} does not fit the prompt: expected one id per {size} tokens; is the block size right?")


def _lengths(rows: Columns, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(rows.columns[name], dtype=np.int64)
