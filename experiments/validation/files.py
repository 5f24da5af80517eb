"""Files of a run folder, with one line for those that are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.errors import ConfigError
from experiments.parquet import read_columns
from sched_core.record import Columns


def read_table(path: Path) -> Columns:
    """The columns of a parquet file.

    Raises:
        ConfigError: it cannot be read.
    """
    from pyarrow import ArrowException

    try:
        return dict(read_columns(path))
    except (OSError, ArrowException) as error:
        raise ConfigError(f"cannot be read ({error}); run the experiment again", file=path) from error


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
