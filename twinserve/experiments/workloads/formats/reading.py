"""Reads CSV and JSON lines; every error names the file, the line and what would be right."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from twinserve.experiments.errors import ConfigError, shown
from twinserve.experiments.files.strict_json import loads
from twinserve.experiments.settings.schema import MAX_COUNT

Parser = Callable[[Any], Any]
"""A field's text (CSV) or value (JSON) to its meaning; a ``ValueError`` says what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Parsed columns of a file, and the line (from 1) that each row stands on."""

    path: Path
    lines: list[int]
    columns: Mapping[str, list[Any]]


def whole_number(value: Any) -> int:
    """An integer >= 0; text, an int or a float without a fraction."""
    expected = ValueError("expected a whole number, 0 or more")
    if isinstance(value, bool):
        raise expected
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise expected from None
    if number < 0 or (isinstance(value, float) and number != value):
        raise expected
    if number >= 1 << 62:
        raise ValueError("expected a number below 2**62")
    return number


def token_count(value: Any) -> int:
    """A ``whole_number`` that may be a length."""
    number = whole_number(value)
    if number > MAX_COUNT:
        raise ValueError("expected a number of tokens, at most 2**40")
    return number


def seconds(value: Any) -> float:
    """A finite number >= 0."""
    expected = ValueError("expected a number, 0 or more")
    if isinstance(value, bool):
        raise expected
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise expected from None
    if not isfinite(number) or number < 0:
        raise expected
    return number


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

    def parsed() -> Iterator[tuple[int, list[Any]]]:
        for line, fields in rows:
            if len(fields) != len(header):
                problem = (
                    f"{len(fields)} fields, expected {len(header)}; mend or remove the line (is the file cut off?)"
                )
                raise ConfigError(problem, file=path, key=f"line {line}")
            yield line, [_parse(path, line, name, fields[at], parse) for name, (at, parse) in wanted.items()]

    return _collect(path, list(parsers), parsed())


def read_json_lines(path: Path, parsers: Mapping[str, Parser]) -> Columns:
    """The named keys of a file with one JSON object a line; a parser gets None where a line lacks its key.

    Raises:
        ConfigError: the file is unreadable or empty, or a line is bad.
    """

    def parsed() -> Iterator[tuple[int, list[Any]]]:
        for line, text in _text_lines(path):
            try:
                value = loads(text)
            except ValueError as error:
                hint = "is it cut off? is `format` right?"
                problem = f"not valid JSON ({getattr(error, 'msg', error)}); mend or remove the line ({hint})"
                raise ConfigError(problem, file=path, key=f"line {line}") from None
            if not isinstance(value, dict):
                raise ConfigError("expected a JSON object; is `format` right?", file=path, key=f"line {line}")
            yield line, [_parse(path, line, name, value.get(name), parse) for name, parse in parsers.items()]

    return _collect(path, list(parsers), parsed())


def _collect(path: Path, names: list[str], rows: Iterator[tuple[int, list[Any]]]) -> Columns:
    lines, values = [], []
    for line, row in rows:
        lines.append(line)
        values.append(row)
    if not lines:
        raise ConfigError("has no rows; expected at least one request", file=path)
    columns = zip(*values, strict=True)
    return Columns(path=path, lines=lines, columns={name: list(c) for name, c in zip(names, columns, strict=True)})


def _parse(path: Path, line: int, name: str, value: Any, parse: Parser) -> Any:
    try:
        return parse(value)
    except ValueError as error:
        text = "missing" if value is None else shown(value)
        raise ConfigError(f"{name} is {text}; {error}", file=path, key=f"line {line}") from None


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for fields in reader:
                if fields:
                    yield reader.line_num, fields
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        _unreadable(path, error)


def _text_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line, text in enumerate(file, start=1):
                if not text.isspace():
                    yield line, text
    except (OSError, UnicodeDecodeError) as error:
        _unreadable(path, error)


def _unreadable(path: Path, error: Exception) -> NoReturn:
    if isinstance(error, UnicodeDecodeError):
        reason = "it is not UTF-8 text; is it compressed, or no trace at all?"
    else:
        reason = f"{getattr(error, 'strerror', None) or error}; give a readable text file"
    raise ConfigError(f"cannot be read: {reason}", file=path) from None
