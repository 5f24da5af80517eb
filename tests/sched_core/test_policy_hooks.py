"""What the hooks of policies hear, what budgets are made of, and what is left when a policy raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.builders import Harness, internals, make_harness, make_request, tokens_of, waiting_ids
from twinserve.sched_core.events import Finished
from twinserve.sched_core.invariants import check, state_of
from twinserve.sched_core.plan import Ints, StepPlan, StepResult
from twinserve.sched_core.policies.interfaces import AdmissionState, BatchState, Candidate, Rows, StepDraft
from twinserve.sched_core.policies.order import OrderBase
from twinserve.sched_core.policies.victim import LowestPriority
from twinserve.sched_core.requests.request import Request


class Asking:
    """A budget that asks for given tokens, one figure a step; the last one for good."""

    def __init__(self, *tokens: int) -> None:
        self._tokens = list(tokens)

    def tokens(self, state: BatchState, now: int) -> int:
        return self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]


def asking(*tokens: int) -> Callable[[], Asking]:
    return lambda: Asking(*tokens)


class Noting(OrderBase):
    """Writes down all that it hears; ranks by ``worth``, and the running too when ``ranks_running``."""

    def __init__(self, *, ranks_running: bool = False) -> None:
        self.ranks_running = ranks_running
        self.heard: list[tuple[Any, ...]] = []
        self.worth: dict[int, int] = {}
        self.changed = False

    def rank(self, request: Request, now: int) -> tuple[float, ...]:
        return (self.worth.get(request.request_id, 0),)

    def on_arrival(self, request: Request, now: int) -> None:
        self.heard.append(("arrival", request.request_id, now))

    def on_admit(self, request: Request, now: int) -> None:
        self.heard.append(("admit", request.request_id, now))

    def on_tokens(self, request_ids: Ints, num_tokens: Ints, now: int) -> None:
        self.heard.append(("tokens", request_ids.tolist(), num_tokens.tolist(), now))

    def on_finish(self, event: Finished, now: int) -> None:
        self.heard.append(("finish", event.request_id, now))

    def on_time(self, now: int) -> bool:
        changed, self.changed = self.changed, False
        return changed


def test_an_order_hears_arrivals_admissions_tokens_and_ends_of_confirmed_steps() -> None:
    order = Noting()
    harness = make_harness({"order": lambda: order})
    harness.add(make_request(0, 10, max_tokens=2), make_request(1, 5, max_tokens=1))
    plan = harness.begin()
    harness.engine.cancel_step(plan.step_id, harness.now)
    assert order.heard == [("arrival", 0, 0), ("arrival", 1, 0)]
    del order.heard[:]
    harness.steps(2)
    assert order.heard == [
        ("admit", 0, 1),
        ("admit", 1, 1),
        ("tokens", [0, 1], [10, 5], 1),
        ("finish", 1, 1),
        ("tokens", [0], [1], 2),
        ("finish", 0, 2),
    ]


def test_an_order_hears_of_aborted_requests() -> None:
    order = Noting()
    harness = make_harness({"order": lambda: order})
    harness.add(make_request(0))
    harness.abort(0)
    assert order.heard[-1] == ("finish", 0, 0)


def test_the_queue_is_sorted_again_exactly_when_the_order_says_so() -> None:
    order = Noting()
    harness = make_harness({"order": lambda: order}, max_num_seqs=1)
    harness.add(*(make_request(i) for i in range(4)))
    harness.step()
    order.worth = {1: 3, 2: 2, 3: 1}
    harness.step()
    assert waiting_ids(harness.engine) == [1, 2, 3]
    order.changed = True
    plan = harness.begin()
    assert waiting_ids(harness.engine) == [3, 2, 1]
    harness.engine.cancel_step(plan.step_id, harness.now)
    assert waiting_ids(harness.engine) == [3, 2, 1]


@pytest.mark.parametrize(("ranks_running", "expected"), [(False, [0, 1, 2]), (True, [2, 0, 1])])
def test_running_requests_are_served_by_rank_when_the_order_ranks_them(
    ranks_running: bool, expected: list[int]
) -> None:
    order = Noting(ranks_running=ranks_running)
    harness = make_harness({"order": lambda: order})
    harness.add(*(make_request(i) for i in range(3)))
    harness.step()
    order.worth = {0: 1, 1: 1}
    assert list(harness.step()) == expected


@pytest.mark.parametrize(("asked", "given"), [(1000, 16), (17, 16), (7, 7), (0, 1), (-5, 1)])
def test_a_budget_is_kept_between_one_token_and_the_limit(asked: int, given: int) -> None:
    harness = make_harness({"budget": asking(asked)}, max_num_batched_tokens=16)
    harness.add(make_request(0, 40))
    assert harness.step() == {0: given}


@pytest.mark.parametrize("asked", [0, 1, 10, 19])
@pytest.mark.parametrize("policy", ["mixed", "decode_first", "prefill_first", "static"])
def test_a_prompt_that_is_not_cut_starts_whole_whatever_the_budget_asks_for(asked: int, policy: str) -> None:
    harness = make_harness(
        {"budget": asking(asked), "policy": policy},
        num_blocks=10,
        max_num_batched_tokens=100,
        enable_chunked_prefill=False,
    )
    harness.add(make_request(0, 20, max_tokens=3), make_request(1, 30, max_tokens=2))
    steps = harness.run()
    assert [step for step in steps if max(step.values()) > 1] == [{0: 20}, {1: 30}]
    assert harness.num_outputs == {0: 3, 1: 2}


def test_a_budget_below_the_batch_serves_decodes_first_under_decode_first_only() -> None:
    for policy, expected in (("mixed", {0: 1}), ("decode_first", {1: 1})):
        harness = make_harness({"policy": policy, "budget": asking(64, 1)}, long_prefill_token_threshold=4)
        harness.add(make_request(0, 20), make_request(1, 2))
        assert harness.steps(2) == [{0: 4, 1: 2}, expected]


@pytest.mark.parametrize(("policy", "expected"), [("mixed", [0, 1]), ("decode_first", [1, 0])])
def test_decodes_are_the_first_rows_under_decode_first_only(policy: str, expected: list[int]) -> None:
    harness = make_harness({"policy": policy}, long_prefill_token_threshold=4)
    harness.add(make_request(0, 20), make_request(1, 2))
    harness.step()
    assert list(harness.step()) == expected


class RunTwice:
    def compose(self, step: StepDraft) -> None:
        step.run(Rows.DECODES)
        step.run(Rows.ALL)
        step.admit()


def test_a_preempted_row_is_not_run_by_a_later_call() -> None:
    harness = make_harness({"policy": RunTwice}, num_blocks=6)
    harness.add(make_request(0, 40, max_tokens=14), make_request(1, 40, max_tokens=14))
    harness.steps(9)
    assert harness.step() == {0: 1}
    assert harness.plans[-1].preempted == (1,)


def test_the_latest_arrival_of_equal_priority_is_the_victim() -> None:
    candidates = [
        Candidate(request=Request(make_request(i, arrival_ns=when)), num_computed=1, num_tokens=2)
        for i, when in enumerate((0, 20, 10))
    ]
    assert LowestPriority().choose(candidates) == 1


class PolicyFaultError(Exception):
    pass


class Failing(Noting):
    """Raises in the hook named ``at``, once."""

    def __init__(self, at: str) -> None:
        super().__init__(ranks_running=True)
        self.at: str | None = None
        self.armed = at

    def trip(self, where: str) -> None:
        if self.at == where:
            self.at = None
            raise PolicyFaultError(where)

    def rank(self, request: Request, now: int) -> tuple[float, ...]:
        self.trip("rank")
        return ()

    def on_time(self, now: int) -> bool:
        self.trip("on_time")
        return True

    def on_arrival(self, request: Request, now: int) -> None:
        self.trip("on_arrival")

    def on_admit(self, request: Request, now: int) -> None:
        self.trip("on_admit")

    def on_tokens(self, request_ids: Ints, num_tokens: Ints, now: int) -> None:
        self.trip("on_tokens")

    def on_finish(self, event: Finished, now: int) -> None:
        self.trip("on_finish")

    def tokens(self, state: BatchState, now: int) -> int:
        self.trip("budget")
        return 100

    def choose(self, candidates: Sequence[Candidate]) -> int:
        self.trip("victim")
        return len(candidates) - 1

    def may_admit(self, request: Request, num_needed_blocks: int, state: AdmissionState) -> bool:
        self.trip("may_admit")
        return True

    def compose(self, step: StepDraft) -> None:
        step.run(Rows.ALL)
        self.trip("between")
        step.admit()
        self.trip("compose")


def _failing(at: str) -> tuple[Failing, Harness]:
    policy = Failing(at)
    seams = ("policy", "order", "victim", "budget", "admission")
    harness = make_harness(dict.fromkeys(seams, lambda: policy), num_blocks=6)  # type: ignore[arg-type]
    harness.add(make_request(0, 40, max_tokens=14), make_request(1, 40, max_tokens=14), make_request(2, 20))
    harness.steps({"may_admit": 0, "compose": 0}.get(at, 9))
    return policy, harness


@pytest.mark.parametrize("at", ["rank", "on_time", "budget", "victim", "may_admit", "between", "compose"])
def test_a_policy_that_raises_while_a_step_is_planned_leaves_no_trace(at: str) -> None:
    policy, harness = _failing(at)
    before = (state_of(harness.engine), harness.engine.stats())
    policy.at = at
    with pytest.raises(PolicyFaultError, match=at):
        harness.engine.begin_step(harness.now)
    assert (state_of(harness.engine), harness.engine.stats()) == before
    twin = _failing("nothing" if at not in ("may_admit", "compose") else at)[1]
    assert harness.begin().to_bytes() == twin.begin().to_bytes()


@pytest.mark.parametrize("at", ["on_arrival", "rank"])
def test_a_policy_that_raises_on_arrival_queues_nothing(at: str) -> None:
    policy, harness = _failing(at)
    before = state_of(harness.engine)
    policy.at = at
    with pytest.raises(PolicyFaultError):
        harness.engine.add_request(make_request(7), harness.now)
    assert state_of(harness.engine) == before
    assert harness.add(make_request(7))[0].accepted


@pytest.mark.parametrize("at", ["on_admit", "on_tokens", "on_finish"])
def test_a_hook_that_raises_at_the_end_of_a_step_finds_the_step_counted(at: str) -> None:
    policy = Failing(at)
    harness = make_harness({"order": lambda: policy})
    harness.add(make_request(0, max_tokens=1), make_request(1, max_tokens=3))
    plan = harness.begin()
    policy.at = at
    with pytest.raises(PolicyFaultError, match=at):
        harness.engine.finish_step(plan.step_id, StepResult(), harness.now)
    check(harness.engine)
    assert list(internals(harness.engine).requests) == [1]
    assert harness.run() == [{1: 1}, {1: 1}]


def test_tokens_of_a_victim_go_to_the_rows_after_it() -> None:
    """Row 0 has one of eight tokens when row 1 takes its blocks; row 2 then gets seven, not six."""
    harness = make_harness(
        {"budget": asking(20, 8), "victim": "lowest_priority"},
        num_blocks=6,
        block_size=4,
        scheduler_reserve_full_isl=False,
    )
    harness.add(make_request(0, 15, priority=9), make_request(1, 4, priority=0), make_request(2, 22, priority=1))
    assert harness.step() == {0: 15, 1: 4, 2: 1}
    plan = harness.begin()
    assert isinstance(plan, StepPlan)
    assert (plan.preempted, tokens_of(plan), plan.num_tokens) == ((0,), {1: 1, 2: 7}, 8)
