"""Errors that a user can put right: one line, no traceback."""

from __future__ import annotations

from pathlib import Path


class ConfigError(Exception):
    """Something the user gave is wrong; the command line prints ``str(error)`` and exits with 2.

    ``str()`` is one line, ``file: key: message``, where ``file`` (or whatever else the input came from, such as
    ``--set``) and the dotted ``key`` are left out when unknown. ``message`` says what is wrong and what would be right.
    """

    def __init__(self, message: str, *, file: str | Path | None = None, key: str | None = None) -> None:
        super().__init__(message, file, key)
        self.message = " ".join(message.split())
        self.file = None if file is None else str(file)
        self.key = key

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.complaint) if part)

    @property
    def complaint(self) -> str:
        """``key: message``, for where the file is plain."""
        return ": ".join(part for part in (self.key, self.message) if part)

    def __reduce__(self) -> tuple[object, ...]:
        """Workers of a sweep send errors home pickled."""
        return _rebuild, (type(self), self.message, self.file, self.key)


class RunError(ConfigError):
    """A run that began could not end well; what it had written stays. The command line exits with 1."""


class DeviceError(ConfigError):
    """The engine cannot be built on this device, and no single setting is to blame: too little memory, say."""


def _rebuild(kind: type[ConfigError], message: str, file: str | None, key: str | None) -> ConfigError:
    return kind(message, file=file, key=key)
