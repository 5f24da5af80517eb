"""The seams where policies plug in, and what a policy that breaks its promise leads to."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import make_harness, make_request
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.errors import SchedulerError, StuckError
from twinserve.sched_core.plan import Idle, StepPlan
from twinserve.sched_core.policies.choice import PolicyError
from twinserve.sched_core.policies.interfaces import AdmissionState, Rows, StepDraft
from twinserve.sched_core.policies.order import FirstComeFirstServed
from twinserve.sched_core.policies.registry import build_policies, names, seams_with_estimator
from twinserve.sched_core.requests.request import Request


class AdmitThenRun:
    def compose(self, step: StepDraft) -> None:
        step.admit()
        step.run(Rows.ALL)


class NeverAdmit:
    def may_admit(self, request: Request, num_needed_blocks: int, state: AdmissionState) -> bool:
        return False

    def wake_at(self, now: int) -> int | None:
        return None


class AdmitFrom100(NeverAdmit):
    def may_admit(self, request: Request, num_needed_blocks: int, state: AdmissionState) -> bool:
        return state.now >= 100

    def wake_at(self, now: int) -> int | None:
        return 100


class AsksAgainAtOnce(NeverAdmit):
    def wake_at(self, now: int) -> int | None:
        return now


class TickingOrder(FirstComeFirstServed):
    def wake_at(self, now: int) -> int | None:
        return now + 5


def with_policies(**policies: object) -> EngineCore:
    """An engine whose named seams hold the given objects."""
    built = build_policies()
    chosen = {seam: policies.get(seam, getattr(built, seam)) for seam in built.__dataclass_fields__}
    return EngineCore(SchedulerConfig(num_blocks=10), type(built)(**chosen))  # type: ignore[arg-type]


def test_engine_without_requests_needs_no_waking_whatever_its_order_wants() -> None:
    assert with_policies(order=TickingOrder()).begin_step(0) == Idle(wake_at=None)


def test_policy_that_never_admits_is_reported_instead_of_hanging() -> None:
    engine = with_policies(admission=NeverAdmit())
    engine.add_request(make_request(0), 0)
    with pytest.raises(StuckError, match="1 unfinished requests, nothing scheduled"):
        engine.begin_step(0)


def test_policy_that_asks_again_without_waiting_is_reported_too() -> None:
    engine = with_policies(admission=AsksAgainAtOnce())
    engine.add_request(make_request(0), 0)
    with pytest.raises(StuckError):
        engine.begin_step(0)


def test_admission_policy_may_postpone() -> None:
    engine = with_policies(admission=AdmitFrom100())
    engine.add_request(make_request(0), 0)
    assert engine.begin_step(0) == Idle(wake_at=100)
    assert isinstance(engine.begin_step(100), StepPlan)


def test_composition_must_not_run_rows_after_admitting() -> None:
    """Started rows are the last of a plan, and what they share in it may not be taken back."""
    engine = with_policies(composition=AdmitThenRun())
    engine.add_request(make_request(0), 0)
    with pytest.raises(SchedulerError, match="after it has admitted"):
        engine.begin_step(0)


def test_static_batch_is_filled_again_only_when_all_have_ended() -> None:
    harness = make_harness({"policy": "static"}, max_num_seqs=2)
    harness.add(*(make_request(i, 8, max_tokens=2 + i) for i in range(3)))
    assert [set(step) for step in harness.run()] == [{0, 1}, {0, 1}, {1}, {2}, {2}, {2}, {2}]


def test_shortest_predicted_output_is_served_first() -> None:
    harness = make_harness({"order": "sjf"}, max_num_seqs=1)
    harness.add(
        make_request(0, max_tokens=30),
        make_request(1, max_tokens=50, predicted_output_len=5),
        make_request(2, max_tokens=20),
    )
    first_steps = {request_id: i for i, step in reversed(list(enumerate(harness.run()))) for request_id in step}
    assert sorted(first_steps, key=first_steps.__getitem__) == [1, 2, 0]


def test_policies_are_found_by_name_and_by_import_path() -> None:
    assert set(names()) == {"policy", "order", "victim", "budget", "admission"}
    policies = build_policies(policy="twinserve.sched_core.policies.composition:DecodeFirst")
    assert type(policies.composition).__name__ == "DecodeFirst"


class CappedPrefills:
    """At most ``cap`` tokens of prompts beside decodes."""

    def __init__(self, cap: int) -> None:
        self._cap = cap

    def compose(self, step: StepDraft) -> None:
        step.run(Rows.DECODES)
        floor = step.budget - self._cap
        step.run(Rows.PREFILLS, at_most=step.budget - floor)
        step.admit(at_most=step.budget - floor)


class Watching:
    """Notes what a composition sees before anything is scheduled."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []

    def compose(self, step: StepDraft) -> None:
        self.seen.append((step.num_waiting, step.num_decodes, step.budget))
        step.run(Rows.ALL)
        step.admit()


class Aging(FirstComeFirstServed):
    def __init__(self, half_life_s: float, *, weights: tuple[float, ...] = ()) -> None:
        if half_life_s <= 0:
            raise ValueError("half_life_s must be positive")
        self.half_life_s, self.weights = half_life_s, weights


class Estimating:
    def __init__(self, estimator: object, factor: float = 1.0) -> None:
        self.estimator = estimator

    def tokens(self, state: object, now: int) -> int:
        return 64


def test_a_capped_composition_hands_out_no_more_prompt_tokens_than_its_cap() -> None:
    harness = make_harness({"policy": {"use": CappedPrefills, "cap": 5}}, max_num_batched_tokens=64)
    harness.add(*(make_request(i, 12, max_tokens=6) for i in range(3)))
    steps = harness.run()
    assert all(sum(tokens for tokens in step.values() if tokens > 1) <= 5 for step in steps)
    assert sum(sum(step.values()) for step in steps) == 3 * (12 + 5)


def test_a_composition_sees_queue_decodes_and_budget() -> None:
    watching = Watching()
    harness = make_harness({"policy": lambda: watching}, max_num_seqs=1, max_num_batched_tokens=8)
    harness.add(make_request(0, 4, max_tokens=2), make_request(1, 4, max_tokens=2))
    harness.run()
    assert watching.seen[:2] == [(2, 0, 8), (1, 1, 8)]


def test_decode_first_caps_prompts_beside_decodes_only() -> None:
    harness = make_harness({"policy": {"use": "decode_first", "max_prefill_tokens": 3}}, max_num_batched_tokens=64)
    harness.add(make_request(0, 10, max_tokens=8))
    assert harness.step() == {0: 10}
    harness.add(make_request(1, 10, max_tokens=2))
    assert harness.step() == {0: 1, 1: 3}


def test_parameters_reach_the_policy_whatever_names_it() -> None:
    path = f"{__name__}:Aging"
    for use in (path, Aging):
        order = build_policies(order={"use": use, "half_life_s": 5.0}).order
        assert getattr(order, "half_life_s", None) == 5.0
    assert type(build_policies(order=FirstComeFirstServed).order) is FirstComeFirstServed


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"order": {"use": Aging}}, r"^order\.half_life_s: is missing; give it a value"),
        (
            {"order": {"use": Aging, "half_life": 5}},
            r"^order\.half_life: unknown parameter; did you mean half_life_s\?",
        ),
        ({"order": {"use": "sjf", "x": 5}}, r"^order\.x: unknown parameter; known here: nothing"),
        ({"order": {"use": Aging, "half_life_s": -1}}, r"^order\.half_life_s: got -1; half_life_s must be positive"),
        ({"order": {"use": Aging, "half_life_s": "x"}}, r"^order\.half_life_s: got 'x'; '<=' not supported"),
        ({"order": {"half_life_s": 1}}, r"^order: names no policy; write \{use: NAME"),
        ({"order": 3}, r"^order: got 3; should be a name, an import path or a class"),
        ({"ordr": "sjf"}, r"^ordr: there is no such seam; known: policy, order"),
        ({"budget": Estimating}, r"^budget: takes a step-time estimator, and there is none"),
        ({"budget": {"use": Estimating, "estimator": 1}}, r"^budget\.estimator: is given by the run itself"),
    ],
)
def test_a_choice_that_cannot_be_built_names_its_parameter(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        build_policies(**choices)


def test_only_seams_whose_policy_takes_an_estimator_ask_for_one() -> None:
    assert seams_with_estimator({"order": "sjf", "budget": Estimating}) == ("budget",)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mixd", "unknown policy 'mixd'; known: mixed, decode_first, prefill_first, static"),
        ("no_such_module:Policy", "cannot load policy 'no_such_module:Policy'"),
        ("twinserve.sched_core.policies.composition:Nothing", "cannot load policy"),
        ("twinserve.sched_core.policies.registry:names", "is not a class"),
    ],
)
def test_unknown_policy_names_are_explained(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_policies(policy=name)
