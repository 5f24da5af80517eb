"""JSON that every reader accepts: infinity is the text "inf", NaN is a mistake."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from math import isinf
from pathlib import Path
from typing import Any

from twinserve.experiments.errors import ConfigError


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """The object in a JSON file; ``remedy`` says what to do about one that is damaged.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"no JSON: {error}"
        raise ConfigError(f"cannot be read ({reason}); {remedy}", file=path) from error
    if not isinstance(data, dict):
        raise ConfigError(f"does not hold a JSON object; {remedy}", file=path)
    return data


def dumps(data: Any) -> str:
    """Indented strict JSON with a final newline; raises ValueError on NaN."""
    return json.dumps(plain(data), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


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
