"""Reads traces from CSV files."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import numpy as np

from twinserve.experiments.workloads.formats.reading import read_csv, seconds, token_count, whole_number
from twinserve.experiments.workloads.formats.trace_table import Table, since_first

_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_EPOCH = datetime(1970, 1, 1)
_NS_PER_S = 1_000_000_000


def read_azure(path: Path) -> Table:
    """Azure's traces of 2023 and 2024: ``TIMESTAMP`` (up to 9 decimals), ``ContextTokens``, ``GeneratedTokens``."""
    return _timed(path, "TIMESTAMP", "ContextTokens", "GeneratedTokens", calendar=True)


def read_burstgpt(path: Path) -> Table:
    """BurstGPT: ``Timestamp`` (s), ``Request tokens``, ``Response tokens`` (0 marks a failed request)."""
    return _timed(path, "Timestamp", "Request tokens", "Response tokens")


def read_vidur(path: Path) -> Table:
    """Vidur's processed traces: ``arrived_at`` (s), ``num_prefill_tokens``, ``num_decode_tokens``."""
    return _timed(path, "arrived_at", "num_prefill_tokens", "num_decode_tokens")


def read_lengths(path: Path) -> Table:
    """Lengths without times, as Vidur and Etalon ship: ``num_prefill_tokens``, ``num_decode_tokens``."""
    names = ("num_prefill_tokens", "num_decode_tokens")
    rows = read_csv(path, dict.fromkeys(names, token_count))
    input_len, output_len = (np.array(rows.columns[name], dtype=np.int64) for name in names)
    return Table(
        path=path, lines=rows.lines, time_ns=None, input_len=input_len, output_len=output_len, unused=rows.unused
    )


def read_llmservingsim_csv(path: Path) -> Table:
    """LLMServingSim's lengths: ``arrival_time_ns``, ``input_toks``, ``output_toks``."""
    names = ("arrival_time_ns", "input_toks", "output_toks")
    rows = read_csv(path, {names[0]: whole_number, names[1]: token_count, names[2]: token_count})
    input_len, output_len = (rows.columns[name] for name in names[1:])
    return Table(
        path=path,
        lines=rows.lines,
        time_ns=since_first(rows, names[0], 1),
        input_len=np.array(input_len, dtype=np.int64),
        output_len=np.array(output_len, dtype=np.int64),
        unused=rows.unused,
    )


def _timed(path: Path, time: str, input_len: str, output_len: str, *, calendar: bool = False) -> Table:
    parse_time = _calendar_ns if calendar else seconds
    rows = read_csv(path, {time: parse_time, input_len: token_count, output_len: token_count})
    return Table(
        path=path,
        lines=rows.lines,
        time_ns=since_first(rows, time, 1 if calendar else _NS_PER_S),
        input_len=np.array(rows.columns[input_len], dtype=np.int64),
        output_len=np.array(rows.columns[output_len], dtype=np.int64),
        unused=rows.unused,
    )


def _calendar_ns(text: str) -> int:
    """A date and time with up to 9 decimals as nanoseconds since 1970 (``datetime`` alone keeps only 6)."""
    match = _STAMP.fullmatch(text.strip())
    if match is None:
        raise ValueError("expected a time such as 2023-11-16 18:15:46.6805900")
    date, clock, fraction, zone = match.groups()
    moment = datetime.fromisoformat(f"{date} {clock}")
    offset = datetime.fromisoformat(f"{date} {clock}{zone}").utcoffset() if zone else None
    whole = moment - _EPOCH - (offset or (_EPOCH - _EPOCH))
    return (whole.days * 86_400 + whole.seconds) * _NS_PER_S + int((fraction or "0").ljust(9, "0"))
