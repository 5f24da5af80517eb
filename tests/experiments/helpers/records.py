"""Builds run records by hand, one request at a time, in whole milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twinserve.run_core.record import STEP_COLUMNS, Columns, RunRecord

MS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Life:
    """One request; ``token_ms`` are its delivery times. ``sent_ms`` and ``scheduled_ms`` default to the arrival."""

    arrival_ms: int = 0
    token_ms: Sequence[int] = ()
    sent_ms: int | None = None
    scheduled_ms: int | None = None
    end_ms: int | None = None
    reason: str | None = "length"
    refusal: str | None = None
    prompt_len: int = 10
    max_tokens: int = 1000
    num_preemptions: int = 0

    @property
    def sent(self) -> int:
        return self.arrival_ms if self.sent_ms is None else self.sent_ms

    @property
    def end(self) -> int | None:
        if self.refusal is not None:
            return self.sent
        last = self.token_ms[-1] if self.token_ms else self.sent
        return None if self.reason is None else (last if self.end_ms is None else self.end_ms)

    @property
    def scheduled(self) -> int | None:
        if self.refusal is not None or (not self.token_ms and self.scheduled_ms is None):
            return None
        return self.sent if self.scheduled_ms is None else self.scheduled_ms


def refused(arrival_ms: int = 0, reason: str = "prompt_exceeds_kv_cache") -> Life:
    return Life(arrival_ms=arrival_ms, reason=None, refusal=reason)


def make_record(
    *lives: Life,
    steps: Sequence[dict[str, int]] = (),
    stats: dict[str, int] | None = None,
    end_ms: int | None = None,
) -> RunRecord:
    """A record of ``lives`` with ids 0, 1, ...; ``steps`` rows give the columns that matter, others are 0."""
    ends = [0, *(life.end for life in lives if life.end is not None), *(t for life in lives for t in life.token_ms)]
    return RunRecord(
        requests=_request_columns(lives),
        steps={name: [step.get(name, 0) for step in steps] for name in STEP_COLUMNS},
        tokens=_token_columns(lives),
        plans=(),
        stats=stats or {},
        end_ns=(max(ends) if end_ms is None else end_ms) * MS,
    )


def _ns(time_ms: int | None) -> int | None:
    return None if time_ms is None else time_ms * MS


def _request_columns(lives: Sequence[Life]) -> Columns:
    return {
        "request_id": list(range(len(lives))),
        "client": ["" for _ in lives],
        "priority": [0 for _ in lives],
        "prompt_len": [life.prompt_len for life in lives],
        "max_tokens": [life.max_tokens for life in lives],
        "arrival_ns": [life.arrival_ms * MS for life in lives],
        "sent_ns": [life.sent * MS for life in lives],
        "first_scheduled_ns": [_ns(life.scheduled) for life in lives],
        "first_token_ns": [_ns(life.token_ms[0]) if life.token_ms else None for life in lives],
        "last_token_ns": [_ns(life.token_ms[-1]) if life.token_ms else None for life in lives],
        "finish_ns": [_ns(life.end) for life in lives],
        "output_len": [len(life.token_ms) for life in lives],
        "num_cached_tokens": [None if life.scheduled is None else 0 for life in lives],
        "num_preemptions": [life.num_preemptions for life in lives],
        "finish_reason": [life.reason for life in lives],
        "refusal": [life.refusal for life in lives],
        "refusal_detail": [None for _ in lives],
    }


def _token_columns(lives: Sequence[Life]) -> Columns:
    delivered = sorted((time, owner) for owner, life in enumerate(lives) for time in life.token_ms)
    return {
        "request_id": np.array([owner for _, owner in delivered], dtype=np.int64),
        "time_ns": np.array([time * MS for time, _ in delivered], dtype=np.int64),
    }
