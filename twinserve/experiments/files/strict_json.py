"""Strict JSON: infinity is written as the text "inf", and NaN is an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from math import isinf
from typing import Any


def dumps(data: Any) -> str:
    """Indented strict JSON with a final newline; raises ValueError on NaN."""
    return json.dumps(plain(data), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def loads(text: str) -> Any:
    """The value of a JSON text; raises ValueError also for what is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def plain(data: Any) -> Any:
    """``data`` in JSON's types only: tuples become lists, infinities "inf" and "-inf"."""
    if isinstance(data, Mapping):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain(value) for value in data]
    if isinstance(data, Enum):
        return data.value
    if isinstance(data, float) and isinf(data):
        return "inf" if data > 0 else "-inf"
    return data
