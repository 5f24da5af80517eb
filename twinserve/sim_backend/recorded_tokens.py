"""The sampled token ids of a recorded run, returned again in a replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from twinserve.sched_core.plan import Ints, StepPlan


class RecordedTokens:
    """A ``TokenSource``: each request samples its recorded ids in their order, however the steps fall.

    ``request_ids[i]`` was delivered ``token_ids[i]``, in order of delivery (the record's ``tokens``). A request whose
    recorded ids are used up samples id 0: its last token was lost with an aborted client, or the replay has left the
    recording.
    """

    def __init__(self, request_ids: Sequence[int] | Ints, token_ids: Sequence[int] | Ints) -> None:
        owners, ids = np.asarray(request_ids), np.asarray(token_ids)
        order = np.argsort(owners, kind="stable")
        known_ids, starts, counts = np.unique(owners[order], return_index=True, return_counts=True)
        spans = zip(known_ids.tolist(), starts.tolist(), counts.tolist(), strict=True)
        ids = ids[order]
        self._left: dict[int, Iterator[int]] = {
            request_id: iter(ids[start : start + count].tolist()) for request_id, start, count in spans
        }

    def __call__(self, plan: StepPlan) -> Ints:
        """One id per sampling row of ``plan``; to be asked once per step."""
        nothing: Iterator[int] = iter(())
        sampling = plan.request_ids[plan.samples].tolist()
        return np.array([next(self._left.get(request_id, nothing), 0) for request_id in sampling], dtype=np.int64)
