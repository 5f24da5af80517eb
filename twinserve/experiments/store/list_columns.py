"""Reads parquet columns of lists, such as decision logs, as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.parquet import readable
from twinserve.run_core.record import Columns


def read_lists(path: Path, names: Iterable[str], optional: Iterable[str] = ()) -> Columns:
    """Columns of lists of whole numbers as one array per row, without an object per number.

    ``optional`` columns are left out where the file has none.

    Raises:
        ConfigError: the file cannot be read, lacks a column or has another kind of column.
    """
    from pyarrow import parquet

    try:
        with readable(path, "run the experiment again"):
            table = parquet.read_table(path, columns=["step_id", *names, *optional])
            names = [*names, *(name for name in optional if name in table.column_names)]
            lists = {name: _arrays(table.column(name)) for name in names}
    except (AttributeError, KeyError) as error:
        raise ConfigError(f"cannot be read ({error}); run the experiment again", file=path) from error
    return {"step_id": table.column("step_id").to_pylist(), **lists}


def _arrays(column: Any) -> list[np.ndarray[Any, Any]]:
    import pyarrow as pa

    lists = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], type=column.type)
    ends = np.cumsum(lists.value_lengths().to_numpy(zero_copy_only=False))
    return np.split(lists.flatten().cast(pa.int64()).to_numpy(zero_copy_only=False), ends[:-1]) if len(ends) else []
