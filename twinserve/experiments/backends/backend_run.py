"""What a backend returns, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.record import RunRecord

Progress = Callable[[int, int], None]
"""Is told (requests done, requests in all)."""


BLOCKS_KEY = "engine.num_gpu_blocks_override"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """How many KV blocks an engine has, and who said so."""

    count: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRun:
    """What a backend returns: the record, the pool it ran with, and facts for the manifest.

    ``error`` says why the run ended early (None: it did not); the record then holds what had finished. ``warnings``
    belong in the result.
    """

    record: RunRecord
    blocks: Blocks
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, outcome: RunOutcome, blocks: Blocks, **more: Any) -> BackendRun:
        """The run with this outcome; ``more`` are further fields."""
        error = None if outcome.error is None else str(outcome.error)
        return cls(record=outcome.record, blocks=blocks, error=error, **more)
