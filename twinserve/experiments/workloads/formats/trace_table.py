"""The table of requests that every trace reader returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.workloads.arrivals import MAX_SECONDS, NS_PER_S
from twinserve.experiments.workloads.formats.reading import Columns
from twinserve.sched_core.plan import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A trace's rows in file order; arrays have shape ``(rows,)``.

    ``time_ns`` counts from the earliest row, None when the format has no times. ``lines`` are line numbers in the
    file. ``hash_ids`` names each row's prompt blocks of ``hash_block_size`` tokens, None when the format has none;
    ``token_ids`` are the prompts themselves, where the trace has them. ``unused`` names what the file says about
    shared content or sessions beyond that.
    """

    path: Path
    lines: Sequence[int]
    time_ns: Ints | None
    input_len: Ints
    output_len: Ints
    hash_ids: Sequence[Sequence[int]] | None = None
    hash_block_size: int = 0
    token_ids: Sequence[Sequence[int] | None] | None = None
    unused: tuple[str, ...] = ()

    def refuse(self, bad: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], problem: str) -> None:
        """Complain about the first row where ``bad`` holds, if there is one.

        Raises:
            ConfigError: with ``problem`` and the row's line.
        """
        if bad.any():
            raise ConfigError(problem, file=self.path, key=f"line {self.lines[int(bad.argmax())]}")


def since_first(rows: Columns, name: str, unit_ns: float) -> Ints:
    """Column ``name``, in units of ``unit_ns``, as whole nanoseconds since the earliest.

    Raises:
        ConfigError: naming the line of the latest time when the trace lasts more than 285 years.
    """
    times: list[float] = rows.columns[name]
    if None in times:  # allowed where times are replaced; rows then keep their order
        return np.zeros(len(times), dtype=np.int64)
    first, last = min(times), max(times)
    if (last - first) * unit_ns > MAX_SECONDS * NS_PER_S:
        line = rows.lines[times.index(last)]
        problem = f"{name} is {last}, more than 285 years after the earliest; mend the line, or is its unit another?"
        raise ConfigError(problem, file=rows.path, key=f"line {line}")
    return np.array([round((time - first) * unit_ns) for time in times], dtype=np.int64)
