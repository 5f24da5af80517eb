"""What every trace reader returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.errors import ConfigError
from sched_core.plan import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A trace's rows in file order; arrays have shape ``(rows,)``.

    ``time_ns`` counts from the earliest row, None when the format has no times. ``lines`` are line numbers in the
    file. ``hash_ids`` names each row's prompt blocks of ``hash_block_size`` tokens, None when the format has none.
    """

    path: Path
    lines: Sequence[int]
    time_ns: Ints | None
    input_len: Ints
    output_len: Ints
    hash_ids: Sequence[Sequence[int]] | None = None
    hash_block_size: int = 0

    def refuse(self, bad: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], problem: str) -> None:
        """Complain about the first row where ``bad`` holds, if there is one.

        Raises:
            ConfigError: with ``problem`` and the row's line.
        """
        if bad.any():
            raise ConfigError(problem, file=self.path, key=f"line {self.lines[int(bad.argmax())]}")


def since_first(times: Sequence[float] | Sequence[int], unit_ns: float) -> Ints:
    """Times in units of ``unit_ns`` as whole nanoseconds since the earliest."""
    first = min(times)
    return np.array([round((time - first) * unit_ns) for time in times], dtype=np.int64)
