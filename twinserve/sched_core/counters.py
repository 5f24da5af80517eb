"""What an engine counts since its start."""

from __future__ import annotations

from collections.abc import Mapping

from twinserve.sched_core.plan import StepPlan
from twinserve.sched_core.requests.request import Request


class Counters:
    """Confirmed steps, preemptions, and prefix-cache look-ups."""

    __slots__ = ("_block_size", "_cache", "_num_preemptions", "_num_steps", "_resumes")

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._num_steps = self._num_preemptions = 0
        self._cache = dict.fromkeys(("requests", "queries", "hits", "query_blocks", "hit_blocks"), 0)
        self._resumes = dict(self._cache)

    def confirm(self, plan: StepPlan) -> None:
        """``plan`` was run."""
        self._num_steps += 1
        self._num_preemptions += len(plan.preempted)

    def look_up(self, request: Request, num_cached: int, *, resumed: bool = False) -> None:
        """``request`` was admitted with ``num_cached`` tokens found in the prefix cache.

        Those that come back after a preemption find what they computed themselves, and are counted apart.
        """
        num_tokens, size = request.num_tokens, self._block_size
        cache = self._resumes if resumed else self._cache
        cache["requests"] += 1
        cache["queries"] += num_tokens
        cache["hits"] += num_cached
        cache["query_blocks"] += num_tokens // size
        cache["hit_blocks"] += num_cached // size

    def as_dict(self) -> Mapping[str, int]:
        cache = {f"prefix_cache_{name}": count for name, count in self._cache.items()}
        resumes = {f"prefix_cache_preempted_{name}": count for name, count in self._resumes.items()}
        return {"num_steps": self._num_steps, "num_preemptions": self._num_preemptions} | cache | resumes
