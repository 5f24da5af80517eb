"""Atomic writes: files are written under a hidden name, then renamed, so they appear whole or not at all."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files import names

OURS = frozenset(value for name, value in vars(names).items() if name.isupper())
"""Every file name of ours: a folder with one of them was made by us."""
Writer = Callable[[Path], object]


def write_files(folder: Path, writers: Mapping[str, Writer], *, durable: bool = True) -> None:
    """Write files of one folder, each by its writer, which is given a temporary path.

    No file takes its name before all are written, and they do so in the order given: a full disk leaves the folder as
    it was, and a reader who sees the last file sees all. ``durable`` files are on the disk before they take their
    names, and under these when the call returns: a power failure leaves them whole or not at all.

    Raises:
        ConfigError: the folder cannot be made or written, or the disk is full.
    """
    suffix = f"{socket.gethostname()}-{os.getpid()}.tmp"
    temporary = {name: folder / f".{name}.{suffix}" for name in writers}
    try:
        made = _make_folder(folder)
        for name, write in writers.items():
            write(temporary[name])
        if durable:
            _sync(temporary.values())
        for name, path in temporary.items():
            path.replace(folder / name)
        if durable:
            _sync([folder, *made])
    except OSError as error:
        raise storage_error(folder, error) from error
    finally:
        for path in temporary.values():
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _make_folder(folder: Path) -> list[Path]:
    """Make ``folder``; returns the folders in which it or its parents are new."""
    changed = [folder.parent]
    while not changed[-1].exists():
        changed.append(changed[-1].parent)
    folder.mkdir(parents=True, exist_ok=True)
    return changed


def _sync(paths: Iterable[Path]) -> None:
    """Puts files, or the names in folders, on the disk; where a file system cannot, it is left to the system."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    write_files(path.parent, {path.name: text_writer(text)})


def text_writer(text: str) -> Writer:
    return lambda path: path.write_text(text, encoding="utf-8")


def storage_error(path: Path, error: OSError) -> ConfigError:
    """The one line for a folder that cannot be written."""
    reason = error.strerror or str(error)
    return ConfigError(f"cannot be written: {reason}; give --out a writable folder with free space", file=path)


def remove_leftovers(folder: Path) -> None:
    """Delete temporary files that killed processes of this machine left in ``folder``, if it is one of ours.

    It is when all that is visible in it, if anything, includes a file by one of our names.
    """
    host = socket.gethostname()
    visible = {path.name for path in folder.glob("[!.]*")}
    if visible and not visible & OURS and not all(name.endswith(".parquet") for name in visible):
        return
    with suppress(OSError):  # what cannot be removed harms nobody
        for leftover in sorted(folder.glob(f".*.{host}-*.tmp")):
            process = leftover.name.removesuffix(".tmp").rpartition("-")[2]
            if process.isdigit() and not _is_alive(int(process)):
                leftover.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    """False also for a zombie: a killed process whose parent has not noticed still has its number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # no such file system here, or it ended just now: the next call will see
        return True
    return status.rpartition(")")[2].split()[0] != "Z"
