"""Which running request is preempted when blocks run out."""

from __future__ import annotations

from collections.abc import Sequence

from twinserve.sched_core.policies.interfaces import Candidate, Candidates


class Last:
    """The request admitted last (vLLM's fcfs)."""

    def choose(self, candidates: Sequence[Candidate]) -> int:
        return len(candidates) - 1


class LowestPriority:
    """The largest ``priority`` value; among equals the latest arrival (vLLM's priority scheduling)."""

    def choose(self, candidates: Sequence[Candidate]) -> int:
        requests = candidates.requests if isinstance(candidates, Candidates) else [one.request for one in candidates]
        ages = [request.age for request in requests]
        return ages.index(max(ages))
