"""Token ids of the requests in the batch, by slot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twinserve.sched_core.plan import Ints

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RequestTokens:
    """``known_ids[slot]`` are the ids that a request entered the batch with, ``num_known`` their number.

    ``last_ids[slot]`` is the last one that was sampled since: all that a decode step reads. What lies between the two
    is in the KV cache and not needed again; a request that is preempted brings it back when it resumes.
    """

    known_ids: list[Ints]
    num_known: Ints
    last_ids: Ints

    @classmethod
    def create(cls, num_slots: int) -> RequestTokens:
        return cls([_NONE] * num_slots, np.zeros(num_slots, dtype=np.int64), np.zeros(num_slots, dtype=np.int64))

    def enter(self, slot: int, ids: Ints) -> None:
        self.known_ids[slot] = ids
        self.num_known[slot] = len(ids)

    def leave(self, slot: int) -> None:
        self.known_ids[slot] = _NONE

    def at(self, slots: Ints, positions: Ints) -> Ints:
        """The ids of single tokens; beyond the known ones only the last sampled one can be asked for."""
        ids = self.last_ids[slots]
        for row in (positions < self.num_known[slots]).nonzero()[0].tolist():
            ids[row] = self.known_ids[slots.item(row)].item(positions.item(row))
        return ids
