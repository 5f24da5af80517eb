"""Accepts quoted numbers such as ``"1e3"`` and ``"inf"`` wherever a float is expected."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from twinserve.experiments.settings.explain import path_in_data
from twinserve.experiments.settings.plain_numbers import decimal_number

_NUMBER = re.compile(r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|inf(?:inity)?|nan)", re.IGNORECASE)


def with_numbers(data: Mapping[str, Any], error: ValidationError) -> dict[str, Any] | None:
    """A copy of ``data`` where text that was refused as a float is that float; None when there is no such text."""
    found: dict[tuple[int | str, ...], float] = {}
    for detail in error.errors(include_url=False):
        number = _number(detail["input"]) if detail["type"] == "float_type" else None
        if number is not None:
            found[path_in_data(detail["loc"], data)] = number
    return _replace(data, (), found) if found else None


def _number(value: Any) -> float | None:
    return decimal_number(value) if isinstance(value, str) else None


def _replace(data: Any, path: tuple[int | str, ...], found: Mapping[tuple[int | str, ...], float]) -> Any:
    if path in found:
        return found[path]
    if isinstance(data, Mapping):
        return {key: _replace(value, (*path, key), found) for key, value in data.items()}
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [_replace(value, (*path, index), found) for index, value in enumerate(data)]
    return data
