"""The one exception type of the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from twinserve.sched_core.errors import RunStopped

_LONGEST = 270
_SHOWN = 60
_NOT_OURS = (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError)


class EngineError(RunStopped):
    """Something the user can act on: one line that says what is wrong and what would help.

    ``key`` is the dotted setting at fault, None where it is none or several; ``str()`` begins with it. A long message
    is cut in its middle, and control characters are escaped.
    """

    def __init__(self, message: str, *, key: str | None = None) -> None:
        message = one_line(message)
        super().__init__(message)
        self.message = message
        self.key = key

    def __str__(self) -> str:
        return self.message if self.key is None else f"{self.key}: {self.message}"


def one_line(text: str) -> str:
    """``text`` without control characters, at most 270 characters long."""
    if len(text) > _LONGEST:
        text = f"{text[:180]} ... {text[-80:]}"
    text = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return text if len(text) <= _LONGEST else f"{text[:180]} ... {text[-80:]}"


def shown(value: object) -> str:
    """A value of any kind and size as it may appear in a message."""
    if isinstance(value, int) and value.bit_length() > 4 * _SHOWN:
        return f"a number of over {_SHOWN} digits"
    if isinstance(value, str | bytes):
        value = value[: _SHOWN + 1]
    if not isinstance(value, str | bytes | int | float | None):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


@contextmanager
def foreign_errors(complaint: str) -> Iterator[None]:
    """Turns whatever another library raises inside, its panics as well, into ``complaint (what it said)``."""
    try:
        yield
    except (EngineError, *_NOT_OURS):
        raise
    except BaseException as error:
        raise EngineError(f"{complaint} ({type(error).__name__}: {str(error)[:120]})") from error
