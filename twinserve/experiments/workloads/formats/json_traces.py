"""Reads traces from files with one JSON object a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinserve.experiments.workloads.formats.reading import (
    Columns,
    Parser,
    read_json_lines,
    seconds,
    token_count,
    whole_number,
)
from twinserve.experiments.workloads.formats.trace_table import Table, since_first
from twinserve.experiments.workloads.token_streams import MAX_HASH_ID

TOKEN_IDS = ("input_tok_ids", "prompt_token_ids")
"""The keys of prompts as token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The keys of a line."""

    timestamp: str = "timestamp"
    input_length: str = "input_length"
    output_length: str = "output_length"
    hash_ids: str = "hash_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a row must have; a run that replaces times or outputs does without those."""

    times: bool = True
    outputs: bool = True

    def time(self, parse: Parser) -> Parser:
        return parse if self.times else lambda value: None if value is None else parse(value)

    def output(self) -> Parser:
        return token_count if self.outputs else lambda value: 1 if value is None else token_count(value)


def read_mooncake(path: Path, needs: Needs) -> Table:
    """Mooncake: ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids`` of 512-token blocks."""
    return read_timed(path, Labels(), needs, unit_ns=1e6, hash_block_size=512)


def read_timed(path: Path, labels: Labels, needs: Needs, *, unit_ns: float, hash_block_size: int) -> Table:
    """A timed trace with keys ``labels``, times in units of ``unit_ns``; rows may lack hash ids.

    A file without hash ids may have its prompts as token ids.
    """
    parsers: dict[str, Parser] = {
        labels.timestamp: needs.time(seconds),
        labels.input_length: token_count,
        labels.output_length: needs.output(),
    }
    rows = read_json_lines(path, {**parsers, labels.hash_ids: _hash_ids, **dict.fromkeys(TOKEN_IDS, _token_ids)})
    hash_ids = _numbered([ids or () for ids in rows.columns[labels.hash_ids]])
    table = Table(
        path=path,
        lines=rows.lines,
        time_ns=since_first(rows, labels.timestamp, unit_ns),
        input_len=_lengths(rows, labels.input_length),
        output_len=_lengths(rows, labels.output_length),
        hash_ids=hash_ids if any(hash_ids) else None,
        hash_block_size=hash_block_size,
        token_ids=_prompts(rows),
        unused=rows.unused,
    )
    _check_hash_ids(table, labels.hash_ids)
    _check_token_ids(table)
    return table


def read_llmservingsim_json(path: Path, needs: Needs) -> Table:
    """LLMServingSim: ``input_toks``, ``output_toks``, ``arrival_time_ns``, and prompts as ``input_tok_ids``."""
    parsers: dict[str, Parser] = {
        "arrival_time_ns": needs.time(whole_number),
        "input_toks": token_count,
        "output_toks": needs.output(),
    }
    rows = read_json_lines(path, {**parsers, **dict.fromkeys(TOKEN_IDS, _token_ids)})
    table = Table(
        path=path,
        lines=rows.lines,
        time_ns=since_first(rows, "arrival_time_ns", 1),
        input_len=_lengths(rows, "input_toks"),
        output_len=_lengths(rows, "output_toks"),
        token_ids=_prompts(rows),
        unused=rows.unused,
    )
    _check_token_ids(table)
    return table


def _hash_ids(value: Any) -> Sequence[int | str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(_is_id(item) for item in value):
        raise ValueError("expected a list of ids: texts, or whole numbers of 64 bits")
    return value


def _is_id(item: Any) -> bool:
    return isinstance(item, str) or (type(item) is int and -(1 << 63) <= item < 1 << 64)


def _numbered(hash_ids: Sequence[Sequence[int | str]]) -> list[Sequence[int]]:
    """The ids as stream numbers: as they are where all fit, else numbered in order of appearance."""
    if all(type(item) is int and 0 <= item <= MAX_HASH_ID for ids in hash_ids for item in ids):
        return hash_ids  # type: ignore[return-value]  # just seen
    numbers: dict[int | str, int] = {}
    return [[numbers.setdefault(item, len(numbers)) for item in ids] for ids in hash_ids]


def _token_ids(value: Any) -> Sequence[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < 1 << 31 for item in value):
        raise ValueError("expected a list of token ids, whole numbers below 2**31")
    return value


def _prompts(rows: Columns) -> list[Sequence[int] | None] | None:
    first, second = (rows.columns[name] for name in TOKEN_IDS)
    found = [ids if ids is not None else others for ids, others in zip(first, second, strict=True)]
    return found if any(ids is not None for ids in found) else None


def _check_token_ids(table: Table) -> None:
    """
    Raises:
        ConfigError: naming the first line whose token ids are not as many as its prompt is long.
    """
    if table.token_ids is not None:
        given = [
            length if ids is None else len(ids) for ids, length in zip(table.token_ids, table.input_len, strict=True)
        ]
        table.refuse(
            np.array(given) != table.input_len, "the token ids are not as many as the prompt is long; mend the line"
        )


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
