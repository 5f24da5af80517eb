"""Files of a run folder, with one line for those that are damaged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.errors import ConfigError
from sched_core.record import Columns


def read_lists(path: Path, names: Iterable[str]) -> Columns:
    """Columns of lists of whole numbers as one array per row, without an object per number.

    Raises:
        ConfigError: the file cannot be read, lacks a column or has another kind of column.
    """
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(path, columns=["step_id", *names])
        lists = {name: _arrays(table.column(name)) for name in names}
        return {"step_id": table.column("step_id").to_pylist(), **lists}
    except (OSError, ArrowException, AttributeError, KeyError) as error:
        raise ConfigError(f"cannot be read ({error}); run the experiment again", file=path) from error


def _arrays(column: Any) -> list[np.ndarray[Any, Any]]:
    import pyarrow as pa

    lists = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], type=column.type)
    ends = np.cumsum(lists.value_lengths().to_numpy(zero_copy_only=False))
    return np.split(lists.flatten().cast(pa.int64()).to_numpy(zero_copy_only=False), ends[:-1]) if len(ends) else []


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read ({error}); run the experiment again with --force", file=path) from error
    if not isinstance(data, dict):
        raise ConfigError("does not hold a JSON object; run the experiment again with --force", file=path)
    return data
