"""One step of a loaded engine, to be run as often as one likes: the same rows on the same scattered pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from twinserve.real_backend.engine_loader import LoadedEngine
from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.profiling.plans import Placer
from twinserve.real_backend.profiling.shape import Limits, Row, Shape
from twinserve.sched_core.plan import StepPlan


@contextmanager
def repeatable(loaded: LoadedEngine, rows: Sequence[Row]) -> Iterator[StepPlan]:
    """Runs ``rows`` once, as requests that enter the batch; the plan runs them again while the block lasts.

    Raises:
        EngineError: the engine cannot hold these rows.
    """
    limits = Limits.of(loaded.scheduler)
    shape = Shape.of("bench", rows)
    _check(shape, limits)
    placed = Placer(limits, (0,)).place(shape)
    try:
        loaded.runner.launch(placed.plan(0, len(rows)))
        loaded.runner.collect()
        yield placed.plan(1, 0)
    finally:
        loaded.runner.release(placed.request_ids)


def _check(shape: Shape, limits: Limits) -> None:
    """``Limits.admits``, with the limit that is in the way."""
    needs = (
        (max(row.context for row in shape.rows), limits.max_context, "keys in a row", "engine.max_model_len"),
        (len(shape.rows), limits.max_num_seqs, "rows", "engine.max_num_seqs"),
        (shape.num_tokens, limits.max_num_batched_tokens, "tokens", "engine.max_num_batched_tokens"),
        (shape.num_blocks(limits.block_size), limits.num_blocks, f"blocks of {limits.block_size}", "the KV pool"),
    )
    for needed, most, what, where in needs:
        if needed > most:
            raise EngineError(f"needs {needed:,} {what}; {where} allows {most:,}")
