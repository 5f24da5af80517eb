"""The wall-clock driver with a made-up model: one timestamp per boundary, and the simulator's order of events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.builders import FixedCost
from twinserve.real_backend.errors import EngineError
from twinserve.run_core.clock import ManualClock, WallClock
from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.record import Recorder
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import FollowUp, Traffic
from twinserve.run_core.wall_clock_driver import StepOutput, run_in_real_time
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.plan import StepPlan
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec
from twinserve.sim_backend.driver import simulate

STEP_NS = 1000
CONFIG = SchedulerConfig(num_blocks=10, block_size=4, max_num_batched_tokens=12, max_num_seqs=4, max_model_len=64)


@dataclass
class FakeRunner:
    """Samples ids from request and step; fails at step ``fails_at``. Logs its calls."""

    fails_at: int | None = None
    log: list[str] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    _plan: StepPlan | None = None

    def launch(self, plan: StepPlan) -> None:
        self.log.append("launch")
        if plan.step_id == self.fails_at:
            raise EngineError("the device is out of memory")
        self._plan = plan

    def collect(self) -> StepOutput:
        self.log.append("collect")
        ids = self._plan.request_ids[self._plan.samples] * 100 + self._plan.step_id
        return StepOutput(token_ids=ids, device_ns=STEP_NS // 2)

    def expect(self, spec: RequestSpec) -> None:
        self.expected.append(spec.request_id)

    def release(self, request_ids: Iterable[int]) -> None:
        self.released += request_ids


def spec(request_id: int, *, arrival_ns: int = 0, prompt_len: int = 6, max_tokens: int = 5) -> RequestSpec:
    prompt = Prompt.of_stream(request_id, prompt_len)
    return RequestSpec(request_id=request_id, prompt=prompt, max_tokens=max_tokens, arrival_ns=arrival_ns)


def busy_traffic() -> Traffic:
    """Gaps in which the engine idles, more work than blocks, a client that leaves, a follow-up, a refusal."""
    specs = [spec(index, arrival_ns=index * 1700, prompt_len=3 + 2 * index, max_tokens=4 + index) for index in range(8)]
    specs += [spec(8, arrival_ns=200_000), spec(9), spec(10, prompt_len=63), spec(11, prompt_len=64)]
    return Traffic(specs, max_concurrency=5, follow_ups={9: FollowUp(after=3, delay_ns=50)}, abort_after_ns={6: 9000})


def run(traffic: Traffic, runner: FakeRunner | None = None, **options: object) -> RunOutcome:
    session = Session(EngineCore(CONFIG), traffic, Recorder(keep_plans=True), check=True, **options)
    return run_in_real_time(session, runner or FakeRunner(), ManualClock(tick_ns=STEP_NS))


def test_a_run_equals_its_simulation_to_the_nanosecond() -> None:
    """With steps of a constant time and exact sleeping the two drivers must leave the same record."""
    output_lens = {1: 2, 7: 3}
    real = run(busy_traffic(), output_lens=output_lens).record
    session = Session(EngineCore(CONFIG), busy_traffic(), Recorder(keep_plans=True), output_lens=output_lens)
    simulated = simulate(
        session,
        FixedCost(STEP_NS),
        token_source=lambda plan: plan.request_ids[plan.samples] * 100 + plan.step_id,
    ).complete()
    assert [plan.to_bytes() for plan in real.plans] == [plan.to_bytes() for plan in simulated.plans]
    assert real.requests == simulated.requests
    assert np.array_equal(real.tokens["time_ns"], simulated.tokens["time_ns"])
    assert real.stats == simulated.stats
    assert real.end_ns == simulated.end_ns
    assert real.stats["num_preemptions"] > 0
    assert "abort" in real.requests["finish_reason"]
    assert any(real.requests["refusal"])


def test_the_runner_is_told_of_every_request_that_is_accepted_and_of_no_other() -> None:
    runner = FakeRunner()
    requests = run(busy_traffic(), runner).record.requests
    accepted = [one for one, refusal in zip(requests["request_id"], requests["refusal"], strict=True) if not refusal]
    assert sorted(runner.expected) == sorted(accepted)
    assert len(accepted) < len(requests["request_id"])


def test_steps_reach_from_boundary_to_boundary_and_carry_the_device_span() -> None:
    steps = run(Traffic([spec(0), spec(1, arrival_ns=50_000)])).record.steps
    starts, ends = np.array(steps["start_ns"]), np.array(steps["end_ns"])
    assert ((ends - starts) == STEP_NS).all()
    assert (starts[1:] >= ends[:-1]).all()
    assert 50_000 in starts, "an idle engine sleeps until the arrival"
    assert set(steps["device_ns"]) == {STEP_NS // 2}


def test_recording_happens_while_the_device_works() -> None:
    runner = FakeRunner()
    run(Traffic([spec(0, max_tokens=3)]), runner, on_events=lambda events: runner.log.append("events"))
    assert runner.log == ["launch", "collect", "launch", "events", "collect", "launch", "events", "collect", "events"]


def test_finished_and_aborted_requests_are_released_and_reported() -> None:
    runner, done = FakeRunner(), []
    run(
        Traffic([spec(0), spec(1, max_tokens=50)], abort_after_ns={1: 8000}),
        runner,
        on_progress=done.append,
    )
    assert runner.released == [0, 1]
    assert done == [1, 2]


def test_scripted_lengths_end_requests_early() -> None:
    requests = run(Traffic([spec(0, max_tokens=20), spec(1)]), output_lens={0: 3}).record.requests
    assert requests["output_len"] == [3, 5]
    assert requests["finish_reason"] == ["stop", "length"]


def test_a_failing_step_is_cancelled_and_the_record_keeps_the_rest() -> None:
    runner = FakeRunner(fails_at=6)
    outcome = run(Traffic([spec(0), spec(1, max_tokens=40)]), runner)
    assert str(outcome.error) == "the device is out of memory"
    assert outcome.record.requests["finish_reason"] == ["length", None]
    assert outcome.record.requests["output_len"] == [5, 6]
    assert len(outcome.record.plans) == 6
    assert outcome.record.stats["num_steps"] == 6


def test_a_request_held_back_behind_a_refused_one_is_still_sent() -> None:
    refused, held = spec(0, prompt_len=100), spec(1)
    requests = run(Traffic([refused, held], max_concurrency=1)).record.requests
    assert requests["finish_reason"] == [None, "length"]


def test_the_wall_clock_starts_at_zero_and_never_wakes_early() -> None:
    clock = WallClock()
    assert clock.now() == 0
    wanted = clock.now() + 2_000_000
    clock.wait_until(wanted)
    assert clock.now() >= wanted


def test_a_manual_clock_jumps_when_it_sleeps() -> None:
    clock = ManualClock(tick_ns=5, oversleep_ns=2)
    assert [clock.now(), clock.now()] == [0, 5]
    clock.wait_until(100)
    assert clock.now() == 102
    clock.wait_until(50)
    assert clock.now() == 107


@pytest.mark.parametrize("request_ids", [[], [3]])
def test_a_run_without_work_ends_at_once(request_ids: list[int]) -> None:
    record = run(Traffic([spec(request_id, prompt_len=100) for request_id in request_ids])).record
    assert record.plans == ()
    assert record.end_ns == 0
