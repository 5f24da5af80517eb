"""The outcome of each request: completed, failed, aborted by its client, or unfinished at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from twinserve.run_core.record import Columns
from twinserve.sched_core.events import FinishReason
from twinserve.sched_core.plan import Bools

NO_OUTPUT = "no_output_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """One entry per request in every mask; each request is in exactly one of them.

    Refused requests, those that outgrew the KV cache and those that ended without a single token are ``failed``;
    ``failure_reasons`` names the reason of each request, None unless it failed.
    """

    completed: Bools
    failed: Bools
    aborted: Bools
    unfinished: Bools
    failure_reasons: tuple[str | None, ...]

    def failures_by_reason(self, measured: Bools) -> dict[str, int]:
        """Failed requests among ``measured``, counted by reason in alphabetical order."""
        reasons = zip(self.failure_reasons, measured.tolist(), strict=True)
        return dict(sorted(Counter(reason for reason, counted in reasons if counted and reason is not None).items()))


def outcomes(requests: Columns) -> Outcomes:
    """The outcome of every request, in the order of ``requests``."""
    refused = np.array([refusal is not None for refusal in requests["refusal"]], dtype=np.bool_)
    ended = np.array([reason is not None for reason in requests["finish_reason"]], dtype=np.bool_)
    aborted = np.array([reason == FinishReason.ABORTED for reason in requests["finish_reason"]], dtype=np.bool_)
    rows = zip(requests["refusal"], requests["finish_reason"], requests["output_len"], strict=True)
    reasons = tuple(_failure_reason(*row) for row in rows)
    failed = np.array([reason is not None for reason in reasons], dtype=np.bool_)
    return Outcomes(
        completed=ended & ~failed & ~aborted,
        failed=failed,
        aborted=aborted & ~failed,
        unfinished=~ended & ~refused,
        failure_reasons=reasons,
    )


def _failure_reason(refusal: str | None, finish_reason: str | None, output_len: int) -> str | None:
    if refusal is not None:
        return str(refusal)
    if finish_reason == FinishReason.KV_CAPACITY:
        return str(finish_reason)
    if finish_reason in (FinishReason.STOP, FinishReason.LENGTH) and output_len == 0:
        return NO_OUTPUT
    return None
