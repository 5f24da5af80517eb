"""What a backend returns, whichever it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from traceback import extract_tb
from typing import Any

from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.record import RunRecord
from twinserve.sched_core.errors import RunStopped

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

    ``error`` is what ended the run early (None: nothing did); the record then holds what had finished. ``warnings``
    belong in the result.
    """

    record: RunRecord
    blocks: Blocks
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: BaseException | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, outcome: RunOutcome, blocks: Blocks, **more: Any) -> BackendRun:
        """The run with this outcome; ``more`` are further fields."""
        return cls(record=outcome.record, blocks=blocks, error=outcome.error, **more)

    @property
    def reason(self) -> str | None:
        """Why the run ended early, in one line."""
        if self.error is None or isinstance(self.error, RunStopped):
            return None if self.error is None else str(self.error)
        if isinstance(self.error, KeyboardInterrupt):
            return "interrupted"
        raised_at = extract_tb(self.error.__traceback__)[-1]
        return f"{type(self.error).__name__}: {self.error} ({Path(raised_at.filename).name}, line {raised_at.lineno})"
