"""Token ids of the requests in the batch, by slot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twinserve.sched_core.plan import Ints

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class RequestTokens:
    """``token_ids[slot]`` are the ids that a request entered the batch with, ``num_tokens`` their number.

    ``last_token_ids[slot]`` is the last one that was sampled since: all that a decode step reads. What lies between the
    two is in the KV cache and not needed again; a request that is preempted brings it back when it resumes.
    """

    token_ids: list[Ints]
    num_tokens: Ints
    last_token_ids: Ints

    @classmethod
    def create(cls, num_slots: int) -> RequestTokens:
        return cls([_NONE] * num_slots, np.zeros(num_slots, dtype=np.int64), np.zeros(num_slots, dtype=np.int64))

    def enter(self, slot: int, token_ids: Ints) -> None:
        self.token_ids[slot] = token_ids
        self.num_tokens[slot] = len(token_ids)

    def leave(self, slot: int) -> None:
        self.token_ids[slot] = _NONE

    def at(self, slots: Ints, positions: Ints) -> Ints:
        """The ids of single tokens; beyond the known ones only the last sampled one can be asked for."""
        ids = self.last_token_ids[slots]
        for row in (positions < self.num_tokens[slots]).nonzero()[0].tolist():
            ids[row] = self.token_ids[slots.item(row)].item(positions.item(row))
        return ids
