"""The simulator's loop: virtual time, arrivals at step boundaries, clients, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import FixedCost, make_engine, make_request
from tests.paths import ROOT
from twinserve.run_core.record import Recorder, RunRecord
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import FollowUp, Traffic
from twinserve.sched_core.policies.interfaces import AdmissionState
from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.requests.spec import RequestSpec
from twinserve.sim_backend.driver import simulate


class AdmitAt500:
    """An admission policy that asks to be woken."""

    def may_admit(self, request: Request, num_needed_blocks: int, state: AdmissionState) -> bool:
        return state.now >= 500

    def wake_at(self, now: int) -> int | None:
        return 500 if now < 500 else None


def run(
    specs: list[RequestSpec],
    *,
    cost: FixedCost | None = None,
    engine: dict[str, object] | None = None,
    output_lens: dict[int, int] | None = None,
    policies: dict[str, str] | None = None,
    **traffic: object,
) -> RunRecord:
    session = Session(
        make_engine(policies, **(engine or {})),  # type: ignore[arg-type]
        Traffic(specs, **traffic),  # type: ignore[arg-type]
        Recorder(keep_plans=True),
        output_lens=output_lens,
        check=True,
    )
    return simulate(session, cost or FixedCost()).complete()


def column(record: RunRecord, name: str) -> dict[int, object]:
    return dict(zip(record.requests["request_id"], record.requests[name], strict=True))


def test_three_requests_follow_the_timeline_worked_out_by_hand() -> None:
    """Steps of 10 ns; request 1 arrives in the first step, request 2 when the engine has been idle for 60 ns."""
    specs = [
        make_request(0, 8, max_tokens=3),
        make_request(1, 8, max_tokens=2, arrival_ns=4),
        make_request(2, 8, max_tokens=1, arrival_ns=90),
    ]
    record = run(specs)
    assert column(record, "first_scheduled_ns") == {0: 0, 1: 10, 2: 90}
    assert column(record, "first_token_ns") == {0: 10, 1: 20, 2: 100}
    assert column(record, "finish_ns") == {0: 30, 1: 30, 2: 100}
    assert list(record.steps["start_ns"]) == [0, 10, 20, 90]
    assert record.end_ns == 100


def test_idle_engine_notices_an_arrival_when_the_cost_model_says() -> None:
    record = run([make_request(0, max_tokens=1, arrival_ns=50)], cost=FixedCost(delay=7))
    assert column(record, "arrival_ns") == {0: 50}
    assert column(record, "first_scheduled_ns") == {0: 57}


def test_requests_end_at_their_scripted_length() -> None:
    """Only some are scripted, in an order that differs from their ids."""
    specs = [make_request(i, max_tokens=20) for i in (7, 2, 9, 1)]
    record = run(specs, output_lens={2: 3, 1: 5})
    assert column(record, "output_len") == {7: 20, 2: 3, 9: 20, 1: 5}
    assert column(record, "finish_reason") == {7: "length", 2: "stop", 9: "length", 1: "stop"}


def test_scripted_length_survives_preemption() -> None:
    specs = [make_request(i, 40, max_tokens=30) for i in range(2)]
    record = run(specs, engine={"num_blocks": 6}, output_lens={0: 14, 1: 14})
    assert record.stats["num_preemptions"] == 1
    assert column(record, "output_len") == {0: 14, 1: 14}


def test_closed_loop_keeps_its_clients_busy() -> None:
    record = run([make_request(i, max_tokens=3) for i in range(6)], max_concurrency=2)
    assert column(record, "sent_ns") == {0: 0, 1: 0, 2: 30, 3: 30, 4: 60, 5: 60}


def test_refused_request_does_not_stop_a_closed_loop() -> None:
    specs = [make_request(0, 100), make_request(1, max_tokens=1), make_request(2, 100), make_request(3, max_tokens=1)]
    record = run(specs, engine={"num_blocks": 2}, max_concurrency=1)
    assert column(record, "output_len") == {0: 0, 1: 1, 2: 0, 3: 1}
    assert column(record, "refusal")[0] == column(record, "refusal")[2] == "prompt_exceeds_kv_cache"


def test_turn_after_a_refused_one_is_still_sent() -> None:
    specs = [make_request(0, 100), make_request(1, max_tokens=1)]
    record = run(specs, engine={"num_blocks": 2}, follow_ups={1: FollowUp(after=0, delay_ns=25)})
    assert column(record, "sent_ns")[1] == 25
    assert column(record, "output_len")[1] == 1


def test_client_that_gives_up_gets_no_more_tokens() -> None:
    record = run([make_request(0, max_tokens=100), make_request(1, max_tokens=5)], abort_after_ns={0: 25})
    assert column(record, "finish_reason") == {0: "abort", 1: "length"}
    assert column(record, "finish_ns")[0] == 30
    assert column(record, "output_len")[0] == 3


def test_engine_is_woken_when_a_policy_asks_for_it() -> None:
    record = run([make_request(0, max_tokens=1)], policies={"admission": f"{AdmitAt500.__module__}:AdmitAt500"})
    assert column(record, "first_scheduled_ns") == {0: 500}


def test_progress_counts_up_to_all_requests() -> None:
    seen: list[int] = []
    traffic = Traffic([make_request(i, max_tokens=1 + i) for i in range(3)])
    simulate(Session(make_engine(), traffic, on_progress=seen.append), FixedCost())
    assert seen == [1, 2, 3]


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[RequestSpec], dict[str, object]]:
    count = draw(st.integers(1, 10))
    specs = [
        make_request(
            i, draw(st.integers(1, 40)), draw(st.integers(1, 12)), arrival_ns=draw(st.integers(0, 200)), shared=0
        )
        for i in range(count)
    ]
    turns = {
        i: FollowUp(after=i - 1, delay_ns=draw(st.integers(0, 30))) for i in range(1, count) if draw(st.booleans())
    }
    aborts = {i: draw(st.integers(0, 60)) for i in range(count) if draw(st.integers(0, 3)) == 0}
    cap = draw(st.none() | st.integers(1, 3))
    return specs, {"max_concurrency": cap, "follow_ups": turns, "abort_after_ns": aborts}


@settings(derandomize=True, deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(traffic(), st.integers(2, 12), st.integers(1, 30))
def test_every_request_sent_is_accounted_for_and_times_are_causal(
    clients: tuple[list[RequestSpec], dict[str, object]], num_blocks: int, budget: int
) -> None:
    specs, rules = clients
    record = run(specs, engine={"num_blocks": num_blocks, "block_size": 4, "max_num_batched_tokens": budget}, **rules)
    rows = record.requests
    assert sorted(rows["request_id"]) == list(range(len(specs)))
    for i in range(len(specs)):
        assert (rows["finish_reason"][i] is None) != (rows["refusal"][i] is None)
        times = [rows["arrival_ns"][i], rows["sent_ns"][i]]
        times += [rows[f"{name}_ns"][i] for name in ("first_scheduled", "first_token", "last_token", "finish")]
        known = [time for time in times if time is not None]
        assert known == sorted(known)
    starts, ends = np.array(record.steps["start_ns"]), np.array(record.steps["end_ns"])
    assert (ends > starts).all()
    assert (starts[1:] >= ends[:-1]).all()


@settings(derandomize=True, deadline=None, max_examples=20)
@given(traffic())
def test_same_traffic_gives_the_same_record(clients: tuple[list[RequestSpec], dict[str, object]]) -> None:
    specs, rules = clients
    first, second = (run(specs, engine={"num_blocks": 10, "block_size": 4}, **rules) for _ in range(2))
    assert [plan.to_bytes() for plan in first.plans] == [plan.to_bytes() for plan in second.plans]
    assert {name: list(values) for name, values in first.requests.items()} == {
        name: list(values) for name, values in second.requests.items()
    }


@pytest.mark.parametrize("blocked", [("torch", "transformers", "pandas", "scipy", "matplotlib", "yaml", "pydantic")])
def test_simulation_needs_neither_a_gpu_stack_nor_the_experiment_layer(blocked: tuple[str, ...]) -> None:
    script = f"""
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
sys.modules["twinserve.experiments"] = sys.modules["twinserve.real_backend"] = None
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import Traffic
from twinserve.sim_backend.driver import simulate
from twinserve.sim_backend.linear import LinearCostModel, LinearTerms
from tests.builders import make_engine, make_request
session = Session(make_engine(), Traffic([make_request(0, max_tokens=4)]))
record = simulate(session, LinearCostModel(LinearTerms(base_ms=1.0))).complete()
print(record.end_ns)
"""
    command = [sys.executable, "-W", "error", "-c", script]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (answer.stdout, answer.stderr) == ("4000000\n", "")
