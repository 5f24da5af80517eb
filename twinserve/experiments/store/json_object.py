"""Reads a JSON file that must hold an object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twinserve.experiments.errors import ConfigError

MAX_BYTES = 64 << 20
"""What a result or a manifest never needs."""


def read_object(path: Path, remedy: str) -> dict[str, Any]:
    """The object in a JSON file; ``remedy`` says what to do about one that is damaged.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    return parse_object(read_small(path, remedy), path, remedy)


def read_small(path: Path, remedy: str) -> bytes:
    """The contents of a file that a JSON object may be in: a regular one of at most MAX_BYTES.

    Raises:
        ConfigError: there is no such file, it is no such file, or it cannot be read.
    """
    try:
        if not path.is_file():
            raise ConfigError(f"{'is no file' if path.exists() else 'does not exist'}; {remedy}", file=path)
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror}); {remedy}", file=path) from error
    if len(text) > MAX_BYTES:
        raise ConfigError(f"is larger than {MAX_BYTES >> 20} MiB; {remedy}", file=path)
    return text


def parse_object(text: bytes, path: Path, remedy: str) -> dict[str, Any]:
    """The object in ``text``, which was read from ``path``.

    Raises:
        ConfigError: it holds something else.
    """
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ConfigError(f"is nested too deeply; {remedy}", file=path) from error
    except ValueError as error:
        raise ConfigError(f"cannot be read (no JSON: {str(error)[:80]}); {remedy}", file=path) from error
    if not isinstance(data, dict):
        raise ConfigError(f"does not hold a JSON object; {remedy}", file=path)
    return data
