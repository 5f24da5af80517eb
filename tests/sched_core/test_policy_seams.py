"""The seams where policies plug in, and what a policy that breaks its promise leads to."""

from __future__ import annotations

import pytest

from tests.builders import make_harness, make_request
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.errors import SchedulerError, StuckError
from twinserve.sched_core.plan import Idle, StepPlan
from twinserve.sched_core.policies.interfaces import AdmissionState, Rows, StepDraft
from twinserve.sched_core.policies.order import FirstComeFirstServed
from twinserve.sched_core.policies.registry import build_policies, names
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
