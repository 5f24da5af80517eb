"""What every configuration must be, whatever its keys: plain, not deep, with text that can be written again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinserve.experiments.errors import ConfigError, shown
from twinserve.experiments.settings.yaml_loader import MAX_DEPTH


def check_plain(data: Any, *, source: str, key: str = "", depth: int = 0) -> None:
    """Refuses what no section may hold.

    Raises:
        ConfigError: naming the key: nested too deeply, a key that is no text, or text with control characters or half
            a surrogate pair, which no terminal and no file can show.
    """
    if depth > MAX_DEPTH:
        raise ConfigError(f"nested more than {MAX_DEPTH} levels deep", file=source, key=key)
    if isinstance(data, str):
        _check_text(data, source, key)
    elif isinstance(data, Mapping):
        for name, value in data.items():
            _check_text(name, source, key)
            check_plain(value, source=source, key=f"{key}.{name}".lstrip("."), depth=depth + 1)
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            check_plain(value, source=source, key=f"{key}.{index}".lstrip("."), depth=depth + 1)


def _check_text(text: Any, source: str, key: str) -> None:
    if not isinstance(text, str):
        raise ConfigError(f"{shown(text)} is not a key; keys are words", file=source, key=key or None)
    if not text.isprintable() and any(_is_bad(letter) for letter in text):
        problem = f"got {shown(text)}; should be text without control characters and surrogates"
        raise ConfigError(problem, file=source, key=key or None)


def _is_bad(letter: str) -> bool:
    code = ord(letter)
    return (code < 0x20 and letter not in "\t\n\r") or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000
