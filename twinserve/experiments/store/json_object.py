"""Reads a JSON file that must hold an object."""

from __future__ import annotations

import json
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
