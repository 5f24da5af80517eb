"""How waiting requests enter the batch."""

from __future__ import annotations

from twinserve.sched_core.limits import stop_length
from twinserve.sched_core.plan import StartedRequest
from twinserve.sched_core.policies.interfaces import AdmissionState
from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.scheduled_rows import ScheduledRows
from twinserve.sched_core.state import SchedulerState


class Admitter:
    """One call of ``StepDraft.admit``, for a step that has preempted nothing.

    ``view`` is what the admission policy sees; ``chunk_cap`` the most tokens that one request may get (None: no cap).
    Tokens are handed out while more than ``floor`` are left of the budget. ``held`` admits requests with a single
    token to compute only, in order.
    """

    def __init__(
        self,
        state: SchedulerState,
        scheduled: ScheduledRows,
        view: AdmissionState,
        *,
        chunk_cap: int | None,
        floor: int,
        split_first_only: bool,
        held: bool,
    ) -> None:
        self._state = state
        self._scheduled = scheduled
        self._view = view
        self._chunk_cap = chunk_cap
        self._floor = floor
        self._split_first_only = split_first_only
        self._held = held
        self.started: list[StartedRequest] = []

    def run(self) -> None:
        """Admit in order until something is missing."""
        queue = self._state.queue
        while len(queue) and self._has_room():
            head = queue.peek()
            if not self._admit(head):
                if not self._held:
                    self._bypass(head)
                return

    def _has_room(self) -> bool:
        return self._scheduled.budget > self._floor and self._state.running.size < self._state.config.max_num_seqs

    def _bypass(self, head: Request) -> None:
        """Admit later requests past a blocked head, at most ``max_head_bypass`` over its whole wait."""
        limit, queue = self._state.config.max_head_bypass, self._state.queue
        if head.num_bypassed >= limit or self._nobody_passes(head):
            return
        later = queue.behind_head(limit)
        for request in later:
            if head.num_bypassed >= limit or not self._has_room():
                return
            if self._admit(request):
                self._state.journal.record((setattr, head, "num_bypassed", head.num_bypassed))
                head.num_bypassed += 1
        retries = self._state.pool.cache.num_retries
        tried = (head, *later)
        if all(request.blocked_at == retries for request in tried):
            head.passed_over = (min(request.blocked_until for request in tried), retries, queue.num_changes)

    def _nobody_passes(self, head: Request) -> bool:
        """True when all were blocked the last time and nothing has happened since that could help one of them."""
        until, *seen = head.passed_over
        pool = self._state.pool
        if not self._state.running.size or pool.num_returned >= until:
            return False
        return seen == [pool.cache.num_retries, self._state.queue.num_changes]

    def _admit(self, request: Request) -> bool:
        """Move a waiting request into the batch if its first chunk can run now."""
        blocks = self._state.blocks
        if self._state.running.size and blocks.is_blocked(request):  # an empty batch reserves nothing
            return False
        hits = blocks.find_hits(request)
        computed = len(hits) * blocks.block_size
        wanted = request.num_tokens - computed
        chunk = 0 if self._held and wanted > 1 else self._first_chunk(request, wanted)
        if chunk == 0:
            return False
        num_new = blocks.blocks_for(computed + chunk) - len(hits)
        if not self._fits(request, hits, num_new):
            return False
        self._state.queue.remove(request)
        blocks.pin(request, hits)
        taken = blocks.advance([request], [computed], [computed + chunk], [num_new])
        self._scheduled.add_entering(self._state.running.size, computed, chunk, taken)
        self._append(request, computed)
        self.started.append(
            StartedRequest(
                spec=request.spec,
                resumed=request.resumes,
                num_cached_tokens=computed,
                output_token_ids=tuple(request.output_ids),
                block_ids=tuple(request.block_ids),
            )
        )
        return True

    def _first_chunk(self, request: Request, wanted: int) -> int:
        """Tokens of the first chunk, 0 when it must wait.

        With chunked prefill off a prompt is never cut, but a preempted request may be: with its output it can have
        outgrown the budget, and would otherwise never run again.
        """
        if self._chunk_cap is not None:
            wanted = min(wanted, self._chunk_cap)
        left = self._scheduled.budget - self._floor
        if wanted <= left:
            return wanted
        may_split = self._state.config.enable_chunked_prefill or request.resumes
        return left if may_split and not (self._split_first_only and self._scheduled.num_tokens) else 0

    def _fits(self, request: Request, hits: list[int], num_new: int) -> bool:
        config, pool, blocks = self._state.config, self._state.pool, self._state.blocks
        needed = blocks.blocks_for(request.num_tokens) - len(hits) if config.scheduler_reserve_full_isl else num_new
        reserved = int(config.watermark * (config.num_blocks + 1)) if self._state.running.size else 0
        needed += pool.num_free_among(hits)
        if needed > pool.num_free - reserved:
            if config.scheduler_reserve_full_isl:  # otherwise a shorter chunk may fit a moment later
                blocks.block(request, len(hits), needed - (pool.num_free - reserved))
            return False
        return self._state.policies.admission.may_admit(request, needed, self._view)

    def _append(self, request: Request, computed: int) -> None:
        size = self._state.config.block_size
        self._state.running.append(
            request,
            num_computed=computed,
            capacity=len(request.block_ids) * size,
            stop_at=stop_length(self._state, request),
            key_at=(request.num_tokens // size + 1) * size,
        )
