"""What a run leaves behind."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import FixedCost, Harness, make_engine, make_harness, make_request
from twinserve.run_core.record import STEP_COLUMNS, Recorder, RunRecord
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import Traffic
from twinserve.sched_core.events import RefusalReason
from twinserve.sched_core.features import step_features
from twinserve.sim_backend.driver import simulate


def recorded(harness: Harness, recorder: Recorder) -> RunRecord:
    """Run to the end with steps of 10 ns."""
    now = harness.now
    while harness.engine.has_unfinished:
        plan = harness.begin()
        harness.now = now + 9
        num_before = len(harness.events)
        harness.finish(plan)
        recorder.step(plan, step_features(plan), now, now + 10)
        recorder.events(harness.events[num_before:], now + 10)
        now += 10
    return recorder.finish(now, harness.engine.stats())


def make_run(*, keep_plans: bool = False) -> RunRecord:
    harness, recorder = make_harness(num_blocks=6), Recorder(keep_plans=keep_plans)
    for i in range(2):
        spec = make_request(i, 40, max_tokens=14, client=f"client {i}")
        harness.add(spec)
        recorder.sent(spec, 0)
    recorder.refused(make_request(2, 999), 0, RefusalReason.EXCEEDS_KV_CACHE, "too long")
    return recorded(harness, recorder)


def test_requests_have_one_row_each_with_their_times() -> None:
    rows = make_run().requests
    assert rows["request_id"] == [0, 1, 2]
    assert rows["client"] == ["client 0", "client 1", ""]
    assert rows["first_scheduled_ns"] == [0, 0, None]
    assert rows["first_token_ns"] == [10, 10, None]
    assert rows["last_token_ns"][0] == rows["finish_ns"][0] == 140
    assert rows["output_len"] == [14, 14, 0]
    assert rows["num_preemptions"] == [0, 1, 0]
    assert rows["num_cached_tokens"] == [0, 0, None]
    assert rows["finish_reason"] == ["length", "length", None]
    assert rows["refusal"] == [None, None, "prompt_exceeds_kv_cache"]


def test_steps_have_every_column_and_follow_each_other() -> None:
    record = make_run()
    assert tuple(record.steps) == STEP_COLUMNS
    assert list(record.steps["step_id"]) == list(range(len(record.steps["step_id"])))
    assert list(record.steps["start_ns"][1:]) == list(record.steps["end_ns"][:-1])
    assert sum(record.steps["num_preempted"]) == record.stats["num_preemptions"] == 1
    assert record.end_ns == record.steps["end_ns"][-1]


def test_tokens_are_in_order_of_delivery_and_add_up() -> None:
    record = make_run()
    times = np.asarray(record.tokens["time_ns"])
    assert len(times) == 28
    assert (np.diff(times) >= 0).all()
    assert "token_id" not in record.tokens


def test_decision_log_is_kept_only_when_asked_for() -> None:
    assert make_run().plans == ()
    record = make_run(keep_plans=True)
    assert [plan.step_id for plan in record.plans] == list(record.steps["step_id"])


def test_empty_run_has_every_column() -> None:
    record = Recorder().finish(0, {})
    assert tuple(record.steps) == STEP_COLUMNS
    assert all(len(column) == 0 for column in (record.requests | record.steps | record.tokens).values())


def served(num_requests: int, window_ns: int | None) -> RunRecord:
    """A run of steps of 100 ns in which requests come and go, under preemptions."""
    specs = [make_request(i, 5 + i % 7, max_tokens=3 + i % 11, arrival_ns=130 * i) for i in range(num_requests)]
    specs.append(make_request(num_requests, 4, max_tokens=400))
    specs += [make_request(num_requests + i, 10_000, arrival_ns=9_000 * i) for i in range(1, 4)]
    engine = make_engine(num_blocks=14, block_size=8, max_num_seqs=6, max_num_batched_tokens=20)
    recorder = Recorder(keep_plans=True, window_ns=window_ns)
    return simulate(Session(engine, Traffic(specs), recorder), FixedCost(100)).complete()


@pytest.mark.parametrize("window_ns", [1, 700, 2_500, 10**9])
def test_a_bounded_recorder_keeps_the_last_part_and_whole_figures_of_its_requests(window_ns: int) -> None:
    whole, last = served(200, None), served(200, window_ns)
    num_steps = len(last.steps["step_id"])
    assert min(whole.end_ns, window_ns) <= 100 * num_steps <= 2 * window_ns + 300
    assert {name: list(values) for name, values in last.steps.items()} == {
        name: list(values)[-num_steps:] for name, values in whole.steps.items()
    }
    assert [p.to_bytes() for p in last.plans] == [p.to_bytes() for p in whole.plans[-num_steps:]]
    num_tokens = len(last.tokens["time_ns"])
    for name, values in last.tokens.items():
        assert np.array_equal(values, whole.tokens[name][-num_tokens:])
    rows = {
        name: dict(zip(whole.requests["request_id"], values, strict=True)) for name, values in whole.requests.items()
    }
    for name, values in last.requests.items():
        assert values == [rows[name][request_id] for request_id in last.requests["request_id"]], name
    since = last.steps["start_ns"][0]
    ended_later = {i for i, time in rows["finish_ns"].items() if time is not None and time > since}
    assert ended_later <= set(last.requests["request_id"])
    assert last.stats == whole.stats


def test_a_bounded_recorder_does_not_grow_with_the_run() -> None:
    sizes = [
        (len(record.requests["request_id"]), len(record.steps["step_id"]), len(record.tokens["time_ns"]))
        for record in (served(300, 1_000), served(3_000, 1_000))
    ]
    assert all(longer <= 2 * shorter + 20 for shorter, longer in zip(*sizes, strict=True))
