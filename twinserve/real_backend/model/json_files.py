"""JSON files of a model folder, which may be damaged in any way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twinserve.real_backend.errors import EngineError

_LARGEST_BYTES = 1 << 25


def is_file(path: Path) -> bool:
    """Whether there is such a file. Raises EngineError when the system does not say."""
    try:
        return path.is_file()
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} cannot be read: {_reason(error)}") from error


def read_json(file: Path, *, largest_bytes: int = _LARGEST_BYTES) -> dict[str, Any]:
    """The object in ``file``. Raises EngineError for a file that is missing, too large or no JSON object."""
    if not is_file(file):
        raise EngineError(f"{file} is missing; a model folder in Hugging Face layout is needed")
    try:
        size = file.stat().st_size
        if size > largest_bytes:
            raise EngineError(f"{file} has {size} bytes, more than the {largest_bytes} that are read; get it again")
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise EngineError(f"{file} cannot be read: {_reason(error)}") from error
    except RecursionError as error:
        raise EngineError(f"{file} is nested too deeply; get it again") from error
    except ValueError as error:
        raise EngineError(f"{file} is not valid JSON ({error}); get it again") from error
    if not isinstance(content, dict):
        raise EngineError(f"{file} does not hold a JSON object")
    return content


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
