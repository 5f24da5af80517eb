"""Records as parquet files, with pyarrow alone so that a small run loads no pandas."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from twinserve.experiments.errors import ConfigError, shown
from twinserve.experiments.files.probe import is_file, is_there
from twinserve.run_core.record import Column, Columns
from twinserve.sched_core.plan import Ints, StepPlan

TEXT_COLUMNS = frozenset({"client", "finish_reason", "refusal", "refusal_detail", "graph_mode", "source", "family"})
DECISION_COLUMNS = ("request_ids", "num_computed", "num_new", "num_new_blocks", "new_block_ids", "preempted")
HIT_COLUMNS = ("num_hit_blocks", "hit_block_ids")
"""Decisions that logs of earlier versions lack."""


def write_columns(path: Path, columns: Columns) -> None:
    """One parquet file: 64-bit integers, or text for TEXT_COLUMNS; what never happened is null."""
    _write(
        path, {name: _text(column) if name in TEXT_COLUMNS else _integers(column) for name, column in columns.items()}
    )


def write_decisions(path: Path, plans: Sequence[StepPlan]) -> None:
    """The decision log: one row per step, with the plan's columns as lists."""
    columns = {"step_id": _integers([plan.step_id for plan in plans])}
    for name in (*DECISION_COLUMNS, *HIT_COLUMNS):
        columns[name] = _lists([np.asarray(getattr(plan, name), dtype=np.int64) for plan in plans])
    _write(path, columns)


def read_columns(path: Path) -> dict[str, list[Any]]:
    """The columns of a parquet file as Python lists."""
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = pq.read_table(path).to_pydict()
    return columns


@contextmanager
def readable(path: Path, remedy: str) -> Iterator[None]:
    """For reading ``path``: a file that cannot be read is one line with ``remedy``, what to do about it.

    Raises:
        ConfigError: as said.
    """
    from pyarrow import ArrowException

    if not is_file(path):
        raise ConfigError(f"{'is no file' if is_there(path) else 'does not exist'}; {remedy}", file=path)
    try:
        yield
    except (OSError, EOFError, UnicodeDecodeError, ArrowException) as error:  # damaged names of columns are no UTF-8
        reason = str(error).partition("\n")[0].rpartition("': ")[2]
        raise ConfigError(f"cannot be read ({reason}); {remedy}", file=path) from error


def check_columns(
    columns: Mapping[str, Column], needed: Sequence[str], always_known: Collection[str], path: Path
) -> None:
    """Whether ``columns`` of ``path`` are what ``write_columns`` writes: whole numbers or text, null where not known.

    Raises:
        ConfigError: one of ``needed`` is missing, a column holds something else, or one of ``always_known`` a null.
    """
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ConfigError(f"has no column {', '.join(missing)}; is it from a run of this version?", file=path)
    for name, column in columns.items():
        right = str if name in TEXT_COLUMNS else int
        others = set(map(type, column)) - ({right} if name in always_known else {right, type(None)})
        if others:
            row = next(row for row, value in enumerate(column) if type(value) in others)
            what = "text" if right is str else "a whole number"
            raise ConfigError(f"row {row} holds {shown(column[row])}; expected {what}", file=path, key=name)


# Arrow arrays are made from buffers: pyarrow's own conversion would import pandas, half the time of a small run.


def _integers(column: Any) -> Any:
    import pyarrow as pa

    missing = None if isinstance(column, np.ndarray) else [value is None for value in column]
    known = [0 if value is None else value for value in column] if missing and any(missing) else column
    values = np.ascontiguousarray(known, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [_validity(missing), pa.py_buffer(values)])


def _text(column: Any) -> Any:
    import pyarrow as pa

    parts = [b"" if value is None else str(value).encode() for value in column]
    buffers = [_validity([value is None for value in column]), _offsets(parts), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(pa.string(), len(parts), buffers)


def _lists(parts: Sequence[Ints]) -> Any:
    import pyarrow as pa

    values = _integers(np.concatenate(parts) if parts else np.empty(0, dtype=np.int64))
    return pa.Array.from_buffers(pa.list_(pa.int64()), len(parts), [None, _offsets(parts)], children=[values])


def _offsets(parts: Sequence[Any]) -> Any:
    import pyarrow as pa

    return pa.py_buffer(np.cumsum([0, *map(len, parts)], dtype=np.int32))


def _validity(missing: Sequence[bool] | None) -> Any:
    """Arrow's bitmap of what is not null; None where nothing is."""
    import pyarrow as pa

    if missing is None or not any(missing):
        return None
    return pa.py_buffer(np.packbits(np.logical_not(missing), bitorder="little"))


def _write(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_arrays(list(columns.values()), list(columns)), path, compression="zstd")
