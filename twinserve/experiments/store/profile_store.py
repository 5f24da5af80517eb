"""Writes profile folders, in parts until the profile is complete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from twinserve.experiments.files.atomic import remove_leftovers, storage_error, write_files
from twinserve.experiments.files.names import MANIFEST, PROFILE
from twinserve.experiments.files.parquet import readable, write_columns
from twinserve.experiments.store.json_object import read_object
from twinserve.experiments.store.run_store import About
from twinserve.run_core.record import Columns

if TYPE_CHECKING:
    import pyarrow as pa

PARTS = "parts"
FLUSH_S = 10.0
"""Seconds between two parts: what a kill can cost."""


@dataclass(frozen=True, slots=True)
class ProfileStore:
    """One profile's folder. Parts are written during the measurement and merged at its end."""

    folder: Path

    @property
    def is_complete(self) -> bool:
        return (self.folder / PROFILE).is_file()

    def manifest(self) -> dict[str, Any] | None:
        """The manifest of a profile that was begun, None where there is none.

        Raises:
            ConfigError: it cannot be read.
        """
        path = self.folder / MANIFEST
        return read_object(path, "delete it, or use --force") if path.exists() else None

    def discard(self) -> None:
        """Forgets what an interrupted profile measured."""
        for path in [*self._parts(), *([] if self.is_complete else [self.folder / MANIFEST])]:
            _remove(path)

    def describe(self, about: About) -> None:
        """Writes what is known so far; a finished profile that is being repeated stays as it is."""
        remove_leftovers(self.folder)
        remove_leftovers(self.folder / PARTS)
        write_files(self.folder, {} if self.is_complete else about.writers())

    def add(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Stores measured rows as the next part."""
        if rows:
            number = max((int(path.stem) for path in self._parts()), default=0) + 1
            table: Columns = dict(zip(columns, zip(*rows, strict=True), strict=True))
            write_files(self.folder / PARTS, {f"{number:06}.parquet": partial(write_columns, columns=table)})

    def measured(self) -> set[tuple[int, int]]:
        """(shape_id, repeat) of every row in the parts."""
        import pyarrow.parquet as pq

        tables = [_read(path, partial(pq.read_table, columns=["shape_id", "repeat"])) for path in self._parts()]
        columns = [(table["shape_id"].to_pylist(), table["repeat"].to_pylist()) for table in tables]
        return {key for shapes, repeats in columns for key in zip(shapes, repeats, strict=True)}

    def finish(self, about: About) -> None:
        """Merges the parts into PROFILE, which appears last, and removes them."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        parts = self._parts()
        merged = pa.concat_tables([_read(path, pq.read_table) for path in parts])
        order = [("shape_id", "ascending"), ("repeat", "ascending")]
        write = partial(pq.write_table, merged.sort_by(order), compression="zstd")
        write_files(self.folder, about.writers() | {PROFILE: write})
        for path in parts:
            _remove(path)
        (self.folder / PARTS).rmdir()

    def _parts(self) -> list[Path]:
        return sorted(path for path in (self.folder / PARTS).glob("*.parquet") if path.stem.isdigit())


class PartWriter:
    """Collects measured rows and stores them every FLUSH_S, and at its end whatever ends it."""

    def __init__(self, store: ProfileStore, columns: Sequence[str]) -> None:
        self._store = store
        self._columns = columns
        self._rows: list[Sequence[Any]] = []
        self._stored_at = monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._flush()

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Rows that belong together: they come into the same part."""
        self._rows.extend(rows)
        if monotonic() - self._stored_at > FLUSH_S:
            self._flush()

    def _flush(self) -> None:
        rows, self._rows, self._stored_at = self._rows, [], monotonic()
        self._store.add(self._columns, rows)


def _read(path: Path, read: Any) -> pa.Table:
    with readable(path, "delete it to measure its steps again"):
        return read(path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error
