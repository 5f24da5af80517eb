"""ServeGen workloads: measured rates, gaps and lengths per client and time window.

A folder holds two files per client, as alibaba/ServeGen ships them: ``chunk-N-trace.csv`` (no header: window start
(s), rate (1/s), cv, distribution of gaps, its shape and scale) and ``chunk-N-dataset.json`` (lengths by start time).
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.probe import is_file
from twinserve.experiments.files.strict_json import loads
from twinserve.experiments.settings.paths import resolve
from twinserve.experiments.settings.schema import (
    MAX_COUNT,
    FromList,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seconds,
)
from twinserve.experiments.workloads.arrivals import NS_PER_S
from twinserve.experiments.workloads.formats.reading import Columns, read_csv, seconds
from twinserve.experiments.workloads.options import RequestOptions
from twinserve.experiments.workloads.request_columns import RequestColumns, own_prompt
from twinserve.experiments.workloads.streams import RandomStreams, weighted_choice
from twinserve.sched_core.plan import Ints
from twinserve.sim_backend.arrays import Floats

WINDOW_S = 600.0
"""How long one line of a client's trace lasts."""

_MAX_REQUESTS = 10_000_000

_TRACE_NAME = re.compile(r"chunk-([0-9]{1,9})-trace\.csv")
_FEW_ROUNDS = 64

_WINDOW_COLUMNS = ("start", "rate", "cv", "pattern", "shape", "scale")


class ServeGenConfig(RequestOptions):
    """Requests of ``clients`` (null: all in folder ``path``) from ``start_s`` on, for ``duration_s`` of their trace.

    ``rate_scale`` multiplies every client's rate; ``num_prompts`` keeps the first so many.
    """

    kind: Literal["servegen"]
    path: str
    clients: Annotated[tuple[NonNegativeInt, ...], FromList] | None = None
    start_s: Seconds = 0.0
    duration_s: Annotated[Seconds, Field(gt=0)]
    rate_scale: PositiveFloat = 1.0
    num_prompts: PositiveInt | None = None

    def client_files(self, base_dir: Path) -> dict[int, tuple[Path, Path]]:
        """(trace, dataset) of each client.

        Raises:
            ConfigError: the folder or a file does not exist.
        """
        folder = resolve(self.path, base_dir)
        found = sorted(int(found[1]) for path in _listed(folder) if (found := _TRACE_NAME.fullmatch(path.name)))
        if not found:
            raise ConfigError(f"{folder} has no chunk-N-trace.csv; give a folder of ServeGen", key="workload.path")
        names = self.clients or found
        files = {n: (folder / f"chunk-{n}-trace.csv", folder / f"chunk-{n}-dataset.json") for n in names}
        for path in (path for pair in files.values() for path in pair):
            if not is_file(path):
                known = ", ".join(map(str, found))
                raise ConfigError(f"{path} does not exist; clients here: {known}", key="workload.clients")
        return files


def servegen_rows(config: ServeGenConfig, streams: RandomStreams, base_dir: Path) -> RequestColumns:
    """The requests of all clients, merged by arrival.

    Raises:
        ConfigError: a file is missing or bad, or no client sends anything in that time.
    """
    parts = [
        _client_requests(config, files, streams.generator(f"servegen/{client}"))
        for client, files in config.client_files(base_dir).items()
    ]
    names = [f"chunk-{client}" for client in config.client_files(base_dir)]
    clients = [name for name, part in zip(names, parts, strict=True) for _ in range(part.shape[1])]
    times, input_len, output_len = np.concatenate(parts, axis=1)
    order = np.argsort(times, kind="stable")[: config.num_prompts]
    if not len(order):
        raise ConfigError("no client sends anything in that time; change start_s or duration_s", key="workload")
    return RequestColumns(
        request_id=np.arange(len(order)),
        arrival_ns=times[order],
        input_len=input_len[order],
        output_len=output_len[order],
        prompt_of=own_prompt,
        clients=[clients[at] for at in order.tolist()],
        info={"num_clients": len(parts)},
    )


def _client_requests(config: ServeGenConfig, files: tuple[Path, Path], generator: np.random.Generator) -> Ints:
    """Times (ns since ``start_s``), input and output lengths, shape ``(3, requests)``."""
    windows = _read_windows(files[0])
    lengths = _Lengths(files[1])
    end_s = config.start_s + config.duration_s
    parts = [np.empty((3, 0), dtype=np.int64)]
    for at, start in enumerate(windows.columns["start"]):
        if start + WINDOW_S <= config.start_s or start >= end_s:
            continue
        times = start + _gaps_until(WINDOW_S * config.rate_scale, windows, at, generator) / config.rate_scale
        if not len(times):
            continue  # such windows may have no lengths either
        drawn = lengths.draw(start, len(times), generator)
        inside = (times >= config.start_s) & (times < end_s)
        times_ns = np.rint((times - config.start_s) * NS_PER_S).astype(np.int64)
        parts.append(np.stack([times_ns, *drawn])[:, inside])
    return np.concatenate(parts, axis=1)


def _gaps_until(end_s: float, windows: Columns, at: int, generator: np.random.Generator) -> Floats:
    """Event times in ``[0, end_s)`` of the window's renewal process; none where it has no distribution."""
    pattern, shape, scale = (windows.columns[name][at] for name in ("pattern", "shape", "scale"))
    if not pattern:
        return np.empty(0)
    batch = 16 + int(min(1.2 * end_s * windows.columns["rate"][at], _MAX_REQUESTS))
    parts, last, drawn = [np.empty(0)], 0.0, 0
    while not drawn or last < end_s:
        if drawn > _MAX_REQUESTS:
            problem = f"one client sends over {_MAX_REQUESTS:,} requests in ten minutes; lower workload.rate_scale"
            raise ConfigError(problem, file=windows.path, key=f"line {windows.lines[at]}")
        gaps = scale * generator.weibull(shape, batch) if pattern == "Weibull" else generator.gamma(shape, scale, batch)
        parts.append(last + np.cumsum(gaps))
        last, drawn = float(parts[-1][-1]), drawn + batch
        if len(parts) > _FEW_ROUNDS:  # the rate is far below what the gaps give
            batch = min(2 * batch, _MAX_REQUESTS)
    times = np.concatenate(parts)
    return times[times < end_s]


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        problem = f"{folder} cannot be read: {error.strerror}; give a folder of ServeGen"
        raise ConfigError(problem, key="workload.path") from error


def _pattern(text: str) -> str:
    if text not in ("Weibull", "Gamma", ""):
        raise ValueError("expected Weibull, Gamma or nothing")
    return text


def _read_windows(path: Path) -> Columns:
    parsers = {name: _pattern if name == "pattern" else seconds for name in _WINDOW_COLUMNS}
    windows = read_csv(path, parsers, header=_WINDOW_COLUMNS)
    named = zip(windows.lines, *(windows.columns[name] for name in ("pattern", "shape", "scale")), strict=True)
    for line, pattern, shape, scale in named:
        if pattern and not (shape > 0 and scale > 0):
            raise ConfigError("shape and scale should be greater than 0", file=path, key=f"line {line}")
    return windows


class _Lengths:
    """A client's length distributions; each holds from its start time to the next one's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            data = loads(path.read_text(encoding="utf-8"))
            self._by_start: Mapping[int, Any] = {int(start): entry for start, entry in sorted(data.items())}
        except (OSError, ValueError, AttributeError) as error:
            raise ConfigError(f"not a ServeGen dataset ({error}); get the file again", file=path) from None

    def draw(self, start_s: float, size: int, generator: np.random.Generator) -> tuple[Ints, Ints]:
        """``size`` input lengths and, independently, output lengths of the distributions in force at ``start_s``."""
        held = [start for start in self._by_start if start <= start_s] or list(self._by_start)[:1]
        if not held:
            raise ConfigError("has no lengths; get the file again", file=self._path)
        entry = self._by_start[max(held)]
        input_len, output_len = (self._draw(entry, name, size, generator) for name in ("input_tokens", "output_tokens"))
        return input_len, output_len

    def _draw(self, entry: Any, name: str, size: int, generator: np.random.Generator) -> Ints:
        try:
            weights = literal_eval(entry[name])  # upstream writes the mapping as Python source
            values = np.array(list(weights.keys()), dtype=np.int64)
            if values.ndim != 1 or not (values <= MAX_COUNT).all():
                raise ValueError("lengths are whole numbers up to 2**40")
            drawn = weighted_choice(np.array(list(weights.values()), dtype=np.float64), size, generator)
        except (
            KeyError,
            TypeError,
            ValueError,
            SyntaxError,
            AttributeError,
            IndexError,
            ArithmeticError,
            RecursionError,
            MemoryError,
        ) as error:
            raise ConfigError(f"{name} is no mapping of lengths to weights ({error})", file=self._path) from None
        return np.maximum(values[drawn], np.int64(1))
