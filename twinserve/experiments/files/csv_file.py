"""Rows written as a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

from twinserve.experiments.files.atomic import write_text

CsvRow: TypeAlias = dict[str, Any]
"""Column name -> value."""


def write_csv(path: Path, rows: Sequence[CsvRow]) -> None:
    """Write rows atomically; columns are all keys in order of appearance, what is None or lacking stays empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
