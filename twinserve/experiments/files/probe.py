"""Questions to the file system, whose failures are one line: no permission, too long a name, no such user."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from twinserve.experiments.errors import ConfigError

_GIVE = "give a path that can be looked at"


def expanded(text: str, key: str | None = None) -> Path:
    """The path that ``text`` means, ``~`` expanded.

    Raises:
        ConfigError: it names the home of nobody, or holds a NUL character.
    """
    if "\0" in text:
        raise ConfigError("holds a NUL character, which no file name has", file=text, key=key)
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ConfigError("~ names the home folder of no user here; write the folder out", file=text, key=key) from None


def is_file(path: Path) -> bool:
    """Whether a regular file is there.

    Raises:
        ConfigError: that cannot be known.
    """
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Whether a folder is there; errors as for ``is_file``."""
    return stat.S_ISDIR(_mode(path))


def is_there(path: Path) -> bool:
    """Whether anything is there; errors as for ``is_file``."""
    return _mode(path) != 0


def _mode(path: Path) -> int:
    """The mode of what is there, 0 for nothing."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise ConfigError(f"cannot be looked at: {error.strerror}; {_GIVE}", file=path) from error
    except ValueError as error:
        raise ConfigError(f"is no file name: {error}; {_GIVE}", file=str(path)) from error


def below(out: Path, *names: str) -> Path:
    """``out/name/...``, wherever a name came from: it stays inside ``out``, also where links lead elsewhere.

    Raises:
        ConfigError: a name is no plain name of a folder, or a link leads out of ``out``.
    """
    for name in names:
        if name in ("", ".", "..") or not name.isprintable() or "/" in name or "\\" in name:
            message = f"{name!r} is no plain name of a folder, and nothing is written outside --out; give another name"
            raise ConfigError(message, file=out)
    place = out.joinpath(*names)
    try:
        inside = place.resolve().is_relative_to(out.resolve())
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"cannot be looked at: {error}; {_GIVE}", file=place) from error
    if not inside:
        raise ConfigError("is a link that leads out of its folder; remove it or give --out", file=place)
    return place
