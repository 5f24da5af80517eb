"""Which running request is preempted when blocks run out."""

from __future__ import annotations

from collections.abc import Sequence

from twinserve.sched_core.policies.interfaces import Candidate


class Last:
    """The request admitted last (vLLM's fcfs)."""

    def choose(self, candidates: Sequence[Candidate]) -> int:
        return len(candidates) - 1


class LowestPriority:
    """The largest ``priority`` value; among equals the latest arrival (vLLM's priority scheduling)."""

    def choose(self, candidates: Sequence[Candidate]) -> int:
        def badness(position: int) -> tuple[int, int, int]:
            spec = candidates[position].request.spec
            return (spec.priority, spec.arrival_ns, spec.request_id)

        return max(range(len(candidates)), key=badness)
