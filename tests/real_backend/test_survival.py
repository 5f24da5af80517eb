"""Whatever ends a call of ``generate`` early, the next call gives the tokens of a fresh engine."""

from __future__ import annotations

import gc
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builders import FixedCost, make_engine, make_request
from tests.real_backend.faults import LineCounter, traced
from twinserve.real_backend import LLM, EngineError, SamplingParams
from twinserve.run_core.clock import ManualClock
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import Traffic
from twinserve.run_core.wall_clock_driver import run_in_real_time
from twinserve.sched_core.policies.order import FirstComeFirstServed
from twinserve.sim_backend.driver import simulate
from twinserve.sim_backend.priced_runner import PricedRunner

PROMPTS = [tuple(range(3, 40)), (7, 7, 9), tuple(range(50, 90)), tuple(range(3, 30))]
PARAMS = [
    SamplingParams(temperature=0.0, max_tokens=12),
    SamplingParams(max_tokens=9),
    SamplingParams(temperature=0.7, top_p=0.9, top_k=20, seed=4, max_tokens=10),
    SamplingParams(temperature=0.0, max_tokens=8, min_tokens=3, stop_token_ids=(1, 2)),
]
ERRORS = (KeyboardInterrupt, MemoryError, RuntimeError, ValueError, EngineError, SystemExit)
NUM_BLOCKS = 12  # few enough for preemptions


@pytest.fixture(autouse=True)
def whole_process() -> Iterator[None]:
    """A fault inside the clean-up of collector or signals may leave those of this process changed."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    gc.enable()
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def engine(folder: Path) -> LLM:
    """One engine for all faults: it is to survive them in a row."""
    return load(folder)


@pytest.fixture(scope="module")
def fresh(folder: Path) -> list[list[int]]:
    return generate(load(folder))


def load(folder: Path, **options: Any) -> LLM:
    limits = {"block_size": 8, "num_gpu_blocks_override": NUM_BLOCKS, "max_model_len": 64, "max_num_seqs": 3}
    return LLM(folder, device="cpu", max_num_batched_tokens=16, **{**limits, **options})


def generate(engine: LLM) -> list[list[int]]:
    return [output["token_ids"] for output in engine.generate(PROMPTS, PARAMS, show_progress=False)]


def assert_nothing_leaked(engine: LLM) -> None:
    state, inputs = engine._engine._state, engine._runner._inputs
    assert state.pool.num_free == NUM_BLOCKS
    assert not engine._engine.has_unfinished
    assert engine._engine._in_flight is None
    assert engine._runner._in_flight is None
    assert not inputs._slot_of
    assert sorted(inputs._free_slots) == [0, 1, 2]
    assert (inputs._block_ids == inputs.buffers.filler_block).all()
    assert not inputs.prefetch._pending


def survive(engine: LLM, error: BaseException, at: int, fresh: list[list[int]]) -> str:
    """Where the fault was; "" when the call had ended before."""
    engine._renew()
    counter = LineCounter(error, at)
    raised = traced_generate(engine, counter)
    if raised is None:  # swallowed where it does no harm: requests that bring no seed go on with other ids
        engine._renew()
    else:
        assert error in (raised, raised.__cause__, raised.__context__), counter.where
    assert_nothing_leaked(engine)
    assert generate(engine) == fresh, counter.where
    return counter.where


def traced_generate(engine: LLM, counter: LineCounter) -> BaseException | None:
    with traced(counter):
        try:
            generate(engine)
        except BaseException as error:
            return error
    return None


def count_lines(engine: LLM) -> int:
    engine._renew()
    counter = LineCounter()
    traced_generate(engine, counter)
    return counter.count


def generate_patched(engine: LLM, **methods: Any) -> list[list[int]]:
    with pytest.MonkeyPatch.context() as patch:
        for name, method in methods.items():
            patch.setattr(engine._runner, name, method)
        return generate(engine)


@pytest.mark.parametrize("count", [12, pytest.param(120, marks=pytest.mark.slow)])
def test_a_fault_at_any_line_leaves_an_engine_like_a_new_one(engine: LLM, fresh: list[list[int]], count: int) -> None:
    total, rng = count_lines(engine), random.Random(count)
    places = [survive(engine, rng.choice(ERRORS)("injected"), rng.randrange(1, total), fresh) for _ in range(count)]
    assert sum(1 for place in places if place) >= 0.9 * count


def test_a_fault_leaves_nothing_behind_even_before_the_next_call(engine: LLM, fresh: list[list[int]]) -> None:
    def fail(*args: object) -> None:
        raise KeyboardInterrupt

    for method in ("launch", "collect", "release", "expect"):
        with pytest.raises(KeyboardInterrupt):
            generate_patched(engine, **{method: fail})
        assert_nothing_leaked(engine)
        assert generate(engine) == fresh


def test_a_fault_in_the_recovery_itself_is_made_up_for_by_the_next_call(engine: LLM, fresh: list[list[int]]) -> None:
    def fail(*args: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_patched(engine, reset=fail, collect=fail)
    assert not engine._is_whole
    assert generate(engine) == fresh
    assert_nothing_leaked(engine)


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_at_random_moments(engine: LLM, fresh: list[list[int]], signals: int) -> None:
    rng = random.Random(signals)
    collect = engine._runner.collect
    for _ in range(4):
        left = rng.randrange(1, 9)

        def interrupted() -> Any:
            nonlocal left
            left -= 1
            for _ in range(signals if left == 0 else 0):
                os.kill(os.getpid(), signal.SIGINT)
            return collect()

        engine._renew()
        with pytest.raises(KeyboardInterrupt):
            generate_patched(engine, collect=interrupted)
        assert_nothing_leaked(engine)
        assert generate(engine) == fresh


class BreaksOnce(FirstComeFirstServed):
    """Raises in the hook named by ``broken``."""

    broken: str | None = None

    def on_tokens(self, *args: Any) -> None:
        self._may_break("on_tokens")
        super().on_tokens(*args)

    def on_finish(self, *args: Any) -> None:
        self._may_break("on_finish")
        super().on_finish(*args)

    def on_admit(self, *args: Any) -> None:
        self._may_break("on_admit")
        super().on_admit(*args)

    def _may_break(self, hook: str) -> None:
        if BreaksOnce.broken == hook:
            BreaksOnce.broken = None
            raise ZeroDivisionError(hook)


@pytest.mark.parametrize("hook", ["on_tokens", "on_finish", "on_admit"])
def test_a_policy_that_raises_while_a_step_is_confirmed(folder: Path, fresh: list[list[int]], hook: str) -> None:
    engine = load(folder, order=BreaksOnce)
    BreaksOnce.broken = hook
    with pytest.raises(ZeroDivisionError, match=hook):
        generate(engine)
    assert_nothing_leaked(engine)
    assert generate(engine) == fresh


def test_counters_go_on_after_a_failure(folder: Path) -> None:
    engine = load(folder)
    generate(engine)
    before = engine.stats()["num_steps"]
    with pytest.raises(ZeroDivisionError):
        generate_patched(engine, launch=lambda plan: 1 // 0)
    generate(engine)
    assert engine.stats()["num_steps"] == 2 * before


def in_real_time(session: Session) -> Any:
    clock = ManualClock()
    return run_in_real_time(session, PricedRunner(FixedCost(10), clock), clock)


@pytest.mark.parametrize("drive", [in_real_time, lambda session: simulate(session, FixedCost(10))])
def test_a_listener_that_raises_takes_nothing_from_the_record(drive: Any) -> None:
    calls = []

    def listen(events: object) -> None:
        calls.append(events)
        if len(calls) >= 4:
            raise ZeroDivisionError

    specs = [make_request(i, max_tokens=2 + 3 * i) for i in range(4)]
    outcome = drive(Session(make_engine(), Traffic(specs), on_events=listen))
    assert isinstance(outcome.error, ZeroDivisionError)
    assert outcome.record.requests["finish_reason"][0] == "length"
    assert outcome.record.stats["num_steps"] == len(outcome.record.steps["step_id"])
