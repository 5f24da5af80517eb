"""``EngineCore``: the step state machine that both backends drive.

It has no clock and does no I/O; times are integer nanoseconds.
A driver repeats: ``add_request`` what has arrived, ``begin_step``, run the plan, ``finish_step``. Exactly one step is
in flight. A plan is provisional until it is finished: ``cancel_step`` restores the state from before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.counters import Counters
from twinserve.sched_core.draft import Draft
from twinserve.sched_core.errors import SchedulerError, StuckError
from twinserve.sched_core.events import Admission, Event, Finished, Preempted
from twinserve.sched_core.finishing import abort_requests, check_result, deliver
from twinserve.sched_core.pacing import PrefillPacing
from twinserve.sched_core.plan import Idle, Ints, StepPlan, StepResult
from twinserve.sched_core.policies.interfaces import BatchState
from twinserve.sched_core.policies.registry import Policies, build_policies
from twinserve.sched_core.refusal import check_admissible
from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.requests.spec import RequestSpec
from twinserve.sched_core.state import SchedulerState

_NOBODY: frozenset[int] = frozenset()


@dataclass(slots=True)
class _InFlight:
    plan: StepPlan
    rows: Ints
    ends: Ints  # tokens of each row that are computed after the step
    unreported: tuple[int, ...]  # before the plan
    held: bool  # prefill work was held back


class EngineCore:
    """Scheduler and block manager of one engine."""

    def __init__(self, config: SchedulerConfig, policies: Policies | None = None) -> None:
        self.config = config
        self._state = SchedulerState.create(config, policies or build_policies())
        self._batch_state = BatchState(config.max_num_batched_tokens, self._state.running, self._state.queue)
        self._in_flight: _InFlight | None = None
        self._aborting: list[int] = []
        self._unreported: tuple[int, ...] = ()  # preempted since the last plan
        self._now = 0
        self._num_steps = 0
        interval = config.prefill_schedule_interval
        self._pacing = PrefillPacing(interval) if interval > 1 else None
        self._counters = Counters(config.block_size)

    @property
    def has_unfinished(self) -> bool:
        return bool(self._state.requests)

    def stats(self) -> Mapping[str, int]:
        """Counters since the start.

        ``num_steps``, ``num_preemptions``; and of first admissions, as in vLLM, ``prefix_cache_requests``,
        ``prefix_cache_queries`` and ``prefix_cache_hits`` in tokens, ``prefix_cache_query_blocks`` (full blocks) and
        ``prefix_cache_hit_blocks``; the same of resumes after a preemption as ``prefix_cache_preempted_...``.
        """
        return self._counters.as_dict()

    def add_request(self, spec: RequestSpec, now: int) -> Admission:
        """Queue a request, or refuse one that could never run; allowed while a step is in flight."""
        self._advance(now)
        refused = check_admissible(self._state, spec)
        if refused is not None:
            return refused
        request = Request(spec)
        order = self._state.policies.order
        order.on_arrival(request, now)
        request.rank = order.rank(request, now)
        self._state.blocks.hash_prompt(request)
        self._state.queue.add(request)
        self._state.requests[spec.request_id] = request
        return Admission(request_id=spec.request_id)

    def refusal(self, spec: RequestSpec) -> Admission | None:
        """How ``add_request`` would refuse ``spec`` now; None when it would queue it."""
        return check_admissible(self._state, spec)

    def abort(self, request_id: int, now: int) -> tuple[Event, ...]:
        """End a request early: at once, or with the step in flight (which then returns the events).

        A request that is unknown or already finished is left alone: clients may give up too late.
        """
        self._advance(now)
        self._aborting.append(request_id)
        return () if self._in_flight else self._finish_aborted()

    def begin_step(self, now: int) -> StepPlan | Idle:
        """Plan the next step; ``Idle`` when there is nothing to run.

        When a policy raises, its exception passes through and the engine is as before the call: no step is in flight.
        """
        self._advance(now)
        if self._in_flight is not None:
            raise SchedulerError(f"step {self._in_flight.plan.step_id} is still in flight")
        self._state.journal.clear()
        unreported = self._unreported
        try:
            return self._plan(now, unreported)
        except BaseException:
            self._state.journal.rollback()
            self._unreported = unreported
            raise

    def finish_step(self, step_id: int, result: StepResult, now: int) -> tuple[Event, ...]:
        """Confirm the step in flight: count its tokens, apply stop rules, return what happened.

        A result that does not fit the plan is refused (SchedulerError) and leaves the step in flight. Hooks of the
        queue order are called last: when one raises, the step is finished and the engine whole, but its events are
        lost with the exception.
        """
        flight = self._flying(step_id)
        plan, table = flight.plan, self._state.running
        if result.ended or result.token_ids is not None:
            check_result(plan, result)
        self._advance(now)
        self._in_flight = None
        self._state.outputs.settle()
        self._state.journal.clear()
        admitted = self._confirm_started(plan) if plan.started else ()
        self._counters.confirm(plan)
        if self._pacing is not None:
            self._pacing.confirm(plan, table, flight.rows, held=flight.held)
        table.num_computed[flight.rows] = flight.ends
        rows, request_ids, ends = flight.rows, plan.request_ids, flight.ends
        if plan.num_samples < len(rows):
            rows, request_ids, ends = rows[plan.samples], request_ids[plan.samples], ends[plan.samples]
        aborting = self._take_aborting() if self._aborting else _NOBODY
        events = deliver(self._state, rows, request_ids, ends, result, aborting)
        order = self._state.policies.order
        for request in admitted:
            order.on_admit(request, now)
        order.on_tokens(plan.request_ids, plan.num_new, now)
        self._tell(events, now)
        return (*map(_preempted, plan.preempted), *events) if plan.preempted else events

    def cancel_step(self, step_id: int, now: int) -> tuple[Event, ...]:
        """Forget the step in flight: counts, blocks, registrations and queue are exactly as before it was planned.

        Ranks that ``on_time`` changed stay: they depend on the time, not on the step.
        """
        flight = self._flying(step_id)
        self._advance(now)
        self._in_flight = None
        self._unreported = flight.unreported
        self._num_steps -= 1
        self._state.journal.rollback()
        return self._finish_aborted()

    def settle(self) -> None:
        """Do now what finishing the last step left for later; a driver may call it while the device is busy.

        It changes nothing that can be seen, but for the time that the next ``finish_step`` takes.
        """
        self._state.outputs.settle()

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks; refused (False) while any request holds blocks."""
        return self._state.pool.reset_cache()

    def _advance(self, now: int) -> None:
        if now < self._now:
            raise SchedulerError(f"time runs backwards: {now} ns after {self._now} ns")
        self._now = now

    def _plan(self, now: int, unreported: tuple[int, ...]) -> StepPlan | Idle:
        state, order = self._state, self._state.policies.order
        if order.on_time(now):
            state.queue.rerank(lambda request: order.rank(request, now))
        if not state.requests:
            return Idle()
        draft = self._compose(now, self._budget(now))
        if draft.is_empty:
            if draft.preempted:
                # The only row that could run gave up its place: with its blocks free, try again in the same step.
                self._remove_preempted(draft.preempted_rows, draft.scheduled.merged()[0].rows)
                draft = self._compose(now, self._budget(now))
            elif (budget := self._budget_for_head()) > draft.budget:
                draft = self._compose(now, budget)
        return self._launch(draft, unreported) if not draft.is_empty else self._idle(now)

    def _budget(self, now: int) -> int:
        asked = self._state.policies.budget.tokens(self._batch_state, now)
        return max(1, min(asked, self.config.max_num_batched_tokens))

    def _budget_for_head(self) -> int:
        """Tokens that the head of the queue needs at once, 0 when it may be cut."""
        queue = self._state.queue
        if self.config.enable_chunked_prefill or not len(queue):
            return 0
        return min(queue.peek().num_tokens, self.config.max_num_batched_tokens)

    def _compose(self, now: int, budget: int) -> Draft:
        held = self._pacing is not None and self._pacing.defers_prefill(self._state.running)
        draft = Draft(self._state, now, budget, held)
        self._state.policies.composition.compose(draft)
        if draft.preempted:
            self._unreported += tuple(draft.preempted)
        return draft

    def _launch(self, draft: Draft, unreported: tuple[int, ...]) -> StepPlan:
        state = self._state
        scheduled, num_new_blocks = draft.scheduled.merged()
        table = state.running
        rows, ends = scheduled.rows, scheduled.ends
        samples = ends == table.num_tokens[rows]
        request_ids = table.request_ids[rows]
        if draft.preempted_rows:
            rows = self._remove_preempted(draft.preempted_rows, rows)
        plan = StepPlan(  # in the order of its fields: names cost time in a tuple this long
            self._num_steps,
            request_ids,
            scheduled.computed,
            scheduled.tokens,
            samples,
            num_new_blocks,
            draft.scheduled.block_ids(),
            tuple(draft.started),
            self._unreported,
            draft.scheduled.num_tokens,
            int(np.count_nonzero(samples)),
            len(state.queue),
            len(table.requests),
            state.pool.num_free,
        )
        self._unreported = ()
        self._num_steps += 1
        self._in_flight = _InFlight(plan, rows, ends, unreported, draft.holds_prefill)
        return plan

    def _remove_preempted(self, preempted_rows: list[int], rows: Ints) -> Ints:
        """Close the gaps in the table; returns the new numbers of ``rows``."""
        self._state.running.remove(preempted_rows)
        return rows - np.searchsorted(np.sort(preempted_rows), rows)

    def _idle(self, now: int) -> Idle:
        policies = self._state.policies
        asked = (policies.order.wake_at(now), policies.admission.wake_at(now))
        times = [time for time in asked if time is not None and time > now]
        if not times:
            raise StuckError(
                f"{len(self._state.requests)} unfinished requests, nothing scheduled at {now} ns: "
                "a policy refuses work that fits and names no later time to try again"
            )
        return Idle(wake_at=min(times))

    def _flying(self, step_id: int) -> _InFlight:
        flight = self._in_flight
        if flight is None or flight.plan.step_id != step_id:
            raise SchedulerError(f"step {step_id} is not in flight")
        return flight

    def _confirm_started(self, plan: StepPlan) -> list[Request]:
        """Count the look-ups of the requests that entered the batch; returns these."""
        self._state.pool.compact()
        admitted = [self._state.requests[started.spec.request_id] for started in plan.started]
        if self.config.enable_prefix_caching:
            for request, started in zip(admitted, plan.started, strict=True):
                self._counters.look_up(request, started.num_cached_tokens, resumed=started.resumed)
        return admitted

    def _take_aborting(self) -> frozenset[int]:
        aborting, self._aborting = frozenset(self._aborting), []
        return aborting

    def _finish_aborted(self) -> tuple[Event, ...]:
        events = tuple(abort_requests(self._state, self._take_aborting()))
        self._tell(events, self._now)
        return events

    def _tell(self, events: tuple[Event, ...], now: int) -> None:
        for event in events:
            if isinstance(event, Finished):
                self._state.policies.order.on_finish(event, now)


def _preempted(request_id: int) -> Preempted:
    return Preempted(request_id=request_id)
