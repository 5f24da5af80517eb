"""Errors that a user can put right: one line, no traceback."""

from __future__ import annotations

from pathlib import Path
from reprlib import Repr
from typing import Any

MAX_LINE = 280
"""The longest error that is printed; `twinserve: error:` comes on top."""
MAX_VALUE = 60
_MAX_BITS = 400


class ConfigError(Exception):
    """Something the user gave is wrong; the command line prints ``str(error)`` and exits with 2.

    ``str()`` is one line, ``file: key: message``, where ``file`` (or whatever else the input came from, such as
    ``--set``) and the dotted ``key`` are left out when unknown. ``message`` says what is wrong and what would be right.
    The line has at most MAX_LINE characters, and control characters are escaped.
    """

    def __init__(self, message: str, *, file: str | Path | None = None, key: str | None = None) -> None:
        super().__init__(message, file, key)
        self.message = " ".join(message.split())
        self.file = None if file is None else str(file)
        self.key = key

    def __str__(self) -> str:
        return one_line(": ".join(part for part in (self.file, self.key, self.message) if part), MAX_LINE)

    @property
    def complaint(self) -> str:
        """``key: message``, for where the file is plain."""
        return one_line(": ".join(part for part in (self.key, self.message) if part), MAX_LINE)

    def __reduce__(self) -> tuple[object, ...]:
        """Workers of a sweep send errors home pickled."""
        return _rebuild, (type(self), self.message, self.file, self.key)


class RunError(ConfigError):
    """A run that began could not end well; what it had written stays. The command line exits with 1."""


class DeviceError(ConfigError):
    """The engine cannot be built on this device, and no single setting is to blame: too little memory, say."""


def _rebuild(kind: type[ConfigError], message: str, file: str | None, key: str | None) -> ConfigError:
    return kind(message, file=file, key=key)


class _Short(Repr):
    """``repr`` whose work is bounded, whatever the value holds."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = 8
        self.maxstring = self.maxother = 4 * MAX_VALUE

    def repr_int(self, value: int, level: int) -> str:  # noqa: ARG002 - the signature of Repr
        bits = value.bit_length()
        return repr(value) if bits <= _MAX_BITS else f"a number of about {bits * 1233 // 4096} digits"

    def repr_str(self, value: str, level: int) -> str:
        return super().repr_str(value[: 4 * MAX_VALUE], level) if len(value) > 4 * MAX_VALUE else repr(value)


def shown(value: Any, limit: int = MAX_VALUE) -> str:
    """``repr(value)`` of at most ``limit`` characters, at a bounded cost."""
    text = _Short().repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """``text`` on one line of at most ``limit`` characters, control characters and halves of surrogate pairs escaped.

    Of a line that is too long, long words (paths) lose their middle first, then the line does.
    """
    if len(text) > 16 * limit:
        text = _without_middle(text, 16 * limit)
    line = text if text.isprintable() else _escaped(" ".join(text.split()))
    for longest in (2 * MAX_VALUE, MAX_VALUE):
        if len(line) > limit:
            line = " ".join(_without_middle(word, longest) for word in line.split(" "))
    return _without_middle(line, limit)


def _without_middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    tail = (limit - 3) // 3
    return f"{text[: limit - 3 - tail]}...{text[len(text) - tail :]}"


def _escaped(text: str) -> str:
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode() for letter in text
    )
