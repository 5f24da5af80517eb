"""The grid: which steps a profile measures, from the engine's limits and its CUDA graphs alone.

Designed steps cover each axis to its ends, edges of the graphs' buckets included; drawn ones look like the steps of
a server under load, which a calibration has to get right above all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from twinserve.real_backend.profiling.draws import MIN_CHUNK, Draws
from twinserve.real_backend.profiling.shape import Limits, Row, Shape
from twinserve.sched_core.dispatch import CaptureSizes

GRID_VERSION = 1
SKEWED_PER_SIZE = 3
TYPICAL_DECODES = 120
TYPICAL_MIXED = 120
FULL_STEPS = (24, 160)
FULL_STEP_TOKENS = 100_000
"""Drawn steps that fill the budget: this many tokens in all, within the bounds above, since they take the longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The steps to measure; ``num_skipped`` others are in the design but do not fit into the KV pool."""

    shapes: tuple[Shape, ...]
    num_skipped: int


def make_grid(limits: Limits, capture_sizes: CaptureSizes, *, seed: int = 0, density: float = 1.0) -> Grid:
    """Every family's steps, each once; the same arguments give the same grid.

    ``density`` scales the number of drawn steps; the designed ones stay.
    """
    draws = Draws(limits, (seed, GRID_VERSION))
    families = (_decode(draws, density), _prefill(draws), _mixed(draws, density), _bucket_edges(draws, capture_sizes))
    wanted = [shape for family in families for shape in family]
    distinct = list(dict.fromkeys(wanted))
    fitting = tuple(shape for shape in distinct if limits.admits(shape))
    return Grid(shapes=fitting, num_skipped=len(distinct) - len(fitting))


def _decode(draws: Draws, density: float) -> Iterator[Shape]:
    """Batch size x context: all rows alike, many short with few long ones, and as under load."""
    most_rows, longest = draws.limits.max_rows, draws.limits.max_context - 1
    for count in _doubling(1, most_rows):
        for context in _doubling(16, longest, factor=4):
            yield draws.fitted("decode", [Row(context, 1)] * count)
        for _ in range(SKEWED_PER_SIZE):
            yield draws.fitted("decode", draws.skewed_decodes(count))
    for _ in range(round(density * TYPICAL_DECODES)):
        yield draws.fitted("decode", draws.decodes(draws.count(1, most_rows)))


def _prefill(draws: Draws) -> Iterator[Shape]:
    """Chunk length x chunk context, and several chunks in one step."""
    limits = draws.limits
    budget = limits.max_num_batched_tokens
    for number, length in enumerate(_doubling(16, min(budget, limits.max_context), least=MIN_CHUNK)):
        for share in (0.0, 0.125, 0.25, 0.5, 1.0):
            row = Row(int(share * (limits.max_context - length)), length, samples=(number + int(8 * share)) % 2 == 0)
            yield draws.fitted("prefill", [row])
    for count in _doubling(2, min(limits.max_rows, 16)):
        for total in (budget, budget // 2, budget // 4):
            yield from _with_chunks(draws, "prefill", 0, total, count)


def _mixed(draws: Draws, density: float) -> Iterator[Shape]:
    """Decodes beside chunks that fill the budget, as a server with a queue runs them, and smaller steps."""
    limits = draws.limits
    budget, most_decodes = limits.max_num_batched_tokens, limits.max_rows - 1
    if most_decodes < 1:
        return
    for count in _doubling(1, most_decodes):
        for num_chunks in (1, 2):
            yield from _with_chunks(draws, "mixed", count, budget, num_chunks)
    least, most = FULL_STEPS
    for _ in range(round(density * min(max(FULL_STEP_TOKENS // budget, least), most))):
        yield from _with_chunks(draws, "mixed", draws.count(1, most_decodes), budget, draws.log_count(1, 4))
    for _ in range(round(density * TYPICAL_MIXED)):
        count = draws.count(1, most_decodes)
        total = draws.log_count(min(count + MIN_CHUNK, budget), budget)
        yield from _with_chunks(draws, "mixed", count, total, draws.log_count(1, 4))


def _bucket_edges(draws: Draws, sizes: CaptureSizes) -> Iterator[Shape]:
    """For every graph a step that fills it and one that is a token too large for it."""
    limits = draws.limits
    for size in sizes.decode:
        for count in (size, size + 1):
            if count <= limits.max_rows:
                yield draws.fitted("bucket_edge", draws.decodes(count))
    for size in sizes.mixed:
        for total in (size, size + 1):
            if total <= limits.max_num_batched_tokens:
                yield from _with_chunks(draws, "bucket_edge", 0, total, 1)
                most_decodes = min(limits.max_num_seqs - 1, total - MIN_CHUNK)
                if most_decodes > 0:
                    yield from _with_chunks(draws, "bucket_edge", draws.count(1, most_decodes), total, 1)


def _with_chunks(draws: Draws, family: str, num_decodes: int, num_tokens: int, num_chunks: int) -> Iterator[Shape]:
    """A step of ``num_tokens`` in all, or of what the rows beside the decodes can hold; nothing if that is no chunk."""
    decodes = draws.decodes(num_decodes) if num_decodes else []
    room = draws.limits.max_num_seqs - num_decodes
    left = min(num_tokens - num_decodes, room * draws.limits.max_context)
    chunks = draws.chunks(left, min(num_chunks, room))
    if chunks:
        yield draws.fitted(family, decodes + chunks)


def _doubling(start: int, most: int, *, factor: int = 2, least: int = 1) -> list[int]:
    """``start``, ``factor * start``, ... below ``most``, and ``most``; empty where ``most`` is less than ``least``."""
    values = []
    while start < most:
        values.append(start)
        start *= factor
    return [*values, most] if most >= least else []
