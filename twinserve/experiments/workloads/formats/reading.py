"""Reads CSV and JSON lines; every error names the file, the line and what would be right."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, TextIO

from twinserve.experiments.errors import ConfigError, shown
from twinserve.experiments.files.strict_json import loads
from twinserve.experiments.settings.plain_numbers import count_text, decimal_number
from twinserve.experiments.settings.schema import MAX_COUNT

_TEXT = ("text", "text_input", "prompt", "messages", "conversations", "turns")
_TELLING = frozenset(
    {
        *("hash_ids", "block_hashes", "input_tok_ids", "prompt_token_ids", "input_ids", "token_ids", *_TEXT),
        *("session_id", "conversation_id", "chat_id", "parent_chat_id", "parent_id", "delay", "sub_requests"),
    }
)
"""Keys by which traces say what prompts share, or which requests wait for others."""
_ONE_OBJECT_A_LINE = "write one JSON object a line, with times and lengths in tokens (format timed_trace)"

Parser = Callable[[Any], Any]
"""A field's text (CSV) or value (JSON) to its meaning; a ``ValueError`` says what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Parsed columns of a file, and the line (from 1) that each row stands on."""

    path: Path
    lines: list[int]
    columns: Mapping[str, list[Any]]
    unused: tuple[str, ...] = ()
    """What the file says about shared content or sessions and no parser asked for."""


def whole_number(value: Any) -> int:
    """An integer >= 0; digits, an int or a float without a fraction."""
    number = count_text(value) if isinstance(value, str) else _whole(value)
    if number is None or number < 0:
        raise ValueError("expected a whole number, 0 or more")
    if number >= 1 << 62:
        raise ValueError("expected a number below 2**62")
    return number


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if isinstance(value, int) or value.is_integer() else None


def token_count(value: Any) -> int:
    """A ``whole_number`` that may be a length."""
    number = whole_number(value)
    if number > MAX_COUNT:
        raise ValueError("expected a number of tokens, at most 2**40")
    return number


def seconds(value: Any) -> float:
    """A finite number >= 0."""
    number = decimal_number(value) if isinstance(value, str) else _float(value)
    if number is None or not isfinite(number) or number < 0:
        raise ValueError("expected a number, 0 or more")
    return number


def _float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def read_csv(path: Path, parsers: Mapping[str, Parser], header: Sequence[str] = ()) -> Columns:
    """The named columns of a CSV file; other columns are ignored. ``header`` names the columns of a file without one.

    Raises:
        ConfigError: the file is unreadable or empty, a column is missing, or a line is bad.
    """
    rows = _csv_rows(path)
    header = header or [name.strip() for name in next(rows, (0, []))[1]]
    if not header:
        raise ConfigError("is empty; expected a header line and at least one row", file=path)
    missing = [name for name in parsers if name not in header]
    if missing:
        raise ConfigError(f"no column {missing[0]!r}; it has {', '.join(header)}: is `format` right?", file=path)
    wanted = {name: (header.index(name), parser) for name, parser in parsers.items()}
    telling = [(name, at) for at, name in enumerate(header) if _is_telling(name) and name not in parsers]
    unused: dict[str, None] = {}

    def parsed() -> Iterator[tuple[int, list[Any]]]:
        for line, fields in rows:
            if len(fields) != len(header):
                problem = (
                    f"{len(fields)} fields, expected {len(header)}; mend or remove the line (is the file cut off?)"
                )
                raise ConfigError(problem, file=path, key=f"line {line}")
            unused.update((name, None) for name, at in telling if fields[at].strip())
            yield line, [_parse(path, line, name, fields[at], parse) for name, (at, parse) in wanted.items()]

    return _collect(path, list(parsers), parsed(), unused)


def read_json_lines(path: Path, parsers: Mapping[str, Parser]) -> Columns:
    """The named keys of a file with one JSON object a line; a parser gets None where a line lacks its key.

    Raises:
        ConfigError: the file is unreadable or empty, or a line is bad.
    """

    unused: dict[str, None] = {}

    def parsed() -> Iterator[tuple[int, list[Any]]]:
        for line, text in _text_lines(path):
            if line == 1 and text.lstrip().startswith("["):
                raise ConfigError(f"is one JSON list; {_ONE_OBJECT_A_LINE}", file=path)
            try:
                value = loads(text)
            except ValueError as error:
                hint = "is it cut off? is `format` right?"
                problem = f"not valid JSON ({getattr(error, 'msg', error)}); mend or remove the line ({hint})"
                raise ConfigError(problem, file=path, key=f"line {line}") from None
            if not isinstance(value, dict):
                raise ConfigError("expected a JSON object; is `format` right?", file=path, key=f"line {line}")
            _refuse_text(path, line, value, parsers)
            unused.update((name, None) for name in value if _is_telling(name) and name not in parsers)
            hint = _hint(value)
            yield line, [_parse(path, line, name, value.get(name), parse, hint) for name, parse in parsers.items()]

    return _collect(path, list(parsers), parsed(), unused)


def _hint(value: Mapping[str, Any]) -> str:
    """What to say of a line that lacks a key: whether it describes a session or text instead."""
    linked = [name for name in ("sub_requests", "turns", "delay") if name in value]
    text = [name for name in _TEXT if name in value]
    if linked:
        return f"; {linked[0]} is not supported, write a line per request (workload.arrival can replace times)"
    return f"; text ({text[0]}) is not supported, write lengths in tokens" if text else ""


def _is_telling(name: str) -> bool:
    return name.strip().lower().replace(" ", "_") in _TELLING


def _refuse_text(path: Path, line: int, value: Mapping[str, Any], parsers: Mapping[str, Parser]) -> None:
    """
    Raises:
        ConfigError: the line has text, and no key that was asked for but perhaps a time.
    """
    text = [name for name in _TEXT if name in value]
    if text and sum(name in value for name in parsers) <= 1:
        problem = f"has text ({text[0]}) and no lengths; text is not supported: {_ONE_OBJECT_A_LINE}"
        raise ConfigError(problem, file=path, key=f"line {line}")


def _collect(
    path: Path, names: list[str], rows: Iterator[tuple[int, list[Any]]], unused: Mapping[str, None]
) -> Columns:
    lines, values = [], []
    for line, row in rows:
        lines.append(line)
        values.append(row)
    if not lines:
        raise ConfigError("has no rows; expected at least one request", file=path)
    columns = zip(*values, strict=True)
    by_name = {name: list(column) for name, column in zip(names, columns, strict=True)}
    return Columns(path=path, lines=lines, columns=by_name, unused=tuple(unused))


def _parse(path: Path, line: int, name: str, value: Any, parse: Parser, hint: str = "") -> Any:
    try:
        return parse(value)
    except ValueError as error:
        text = "missing" if value is None else shown(value)
        problem = f"{name} is {text}; {error}{hint if value is None else ''}"
        raise ConfigError(problem, file=path, key=f"line {line}") from None


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with _open(path, newline="") as file:
            reader = csv.reader(file)
            for fields in reader:
                if fields:
                    yield reader.line_num, fields
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        _unreadable(path, error)


def _open(path: Path, newline: str | None = None) -> TextIO:
    """The file as text, unpacked when it is gzip, whatever it is called."""
    with path.open("rb") as file:
        packed = file.read(3) == b"\x1f\x8b\x08"
    if packed:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline=newline)
    return path.open(encoding="utf-8-sig", newline=newline)


def _text_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with _open(path) as file:
            for line, text in enumerate(file, start=1):
                if not text.isspace():
                    yield line, text
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        _unreadable(path, error)


def _unreadable(path: Path, error: Exception) -> NoReturn:
    if isinstance(error, UnicodeDecodeError):
        reason = "it is not UTF-8 text; is it compressed, or no trace at all?"
    else:
        reason = f"{getattr(error, 'strerror', None) or error}; give a readable text file"
    raise ConfigError(f"cannot be read: {reason}", file=path) from None
