"""Ends requests at the output lengths that a workload prescribes: the backend's word, never a policy's knowledge."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from twinserve.sched_core.plan import StepPlan


class OutputScript:
    """Counts the tokens that each request samples. ``output_lens`` maps request ids to true output lengths (>= 1);
    requests that it does not name end by the stop rules alone.
    """

    def __init__(self, output_lens: Mapping[int, int]) -> None:
        size = max(output_lens, default=-1) + 1
        self._num_outputs = np.zeros(size, dtype=np.int64)
        self._length = np.full(size, np.iinfo(np.int64).max, dtype=np.int64)
        for request_id, length in output_lens.items():
            self._length[request_id] = length

    def ended(self, plan: StepPlan) -> tuple[int, ...]:
        """Positions among the plan's sampling rows that draw their last token in this step; ask once per step."""
        sampling = plan.request_ids[plan.samples]
        scripted = np.flatnonzero(sampling < len(self._length))
        ids = sampling[scripted]
        self._num_outputs[ids] += 1
        return tuple(scripted[self._num_outputs[ids] >= self._length[ids]].tolist())
