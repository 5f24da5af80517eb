"""What ends a run early: the record keeps what had finished, and no step stays in flight."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest

from tests.builders import FixedCost, make_engine, make_request
from twinserve.run_core.clock import ManualClock
from twinserve.run_core.interrupts import interrupts_deferred
from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import Traffic
from twinserve.run_core.wall_clock_driver import run_in_real_time
from twinserve.sched_core.features import StepFeatures
from twinserve.sched_core.plan import StepPlan
from twinserve.sim_backend.driver import simulate
from twinserve.sim_backend.priced_runner import PricedRunner

Driver = Callable[[Session, FixedCost], RunOutcome]


def in_real_time(session: Session, cost: FixedCost) -> RunOutcome:
    clock = ManualClock()
    return run_in_real_time(session, PricedRunner(cost, clock), clock)


@pytest.fixture(params=[simulate, in_real_time], ids=["simulated", "in real time"])
def drive(request: pytest.FixtureRequest) -> Driver:
    return request.param


class Raises(FixedCost):
    """Raises ``error`` in the step numbered ``at``; a signal number is sent to this process instead."""

    def __init__(self, error: BaseException | int, at: int = 3) -> None:
        super().__init__(10)
        self.error, self.left = error, at

    def step_ns(self, features: StepFeatures, now: int) -> int:
        if self.left == 0 and isinstance(self.error, int):
            os.kill(os.getpid(), self.error)
        elif self.left == 0:
            raise self.error
        self.left -= 1
        return super().step_ns(features, now)


def session(num_requests: int = 4) -> Session:
    specs = [make_request(i, max_tokens=2 + 3 * i) for i in range(num_requests)]
    return Session(make_engine(), Traffic(specs), check=True)


@pytest.mark.parametrize("error", [ValueError("a policy of mine"), MemoryError(), KeyboardInterrupt()])
def test_whatever_a_step_raises_is_handed_on_with_what_had_finished(drive: Driver, error: BaseException) -> None:
    broken = session()
    outcome = drive(broken, Raises(error))
    assert outcome.error is error
    assert outcome.record.requests["finish_reason"] == ["length", None, None, None]
    assert outcome.record.requests["output_len"] == [2, 3, 3, 3]
    assert outcome.record.stats["num_steps"] == 3
    assert isinstance(broken.engine.begin_step(outcome.record.end_ns), StepPlan), "no step is in flight"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_when_the_step_in_flight_has_ended(drive: Driver, number: int) -> None:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        outcome = drive(session(), Raises(number))
        handlers = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert isinstance(outcome.error, KeyboardInterrupt)
    assert outcome.record.stats["num_steps"] == 4
    assert len(np.unique(outcome.record.steps["step_id"])) == 4
    assert handlers == [signal.default_int_handler] * 2


def test_a_second_signal_does_not_wait() -> None:
    asked = []

    def signalled_twice() -> None:
        with interrupts_deferred(lambda: asked.append(1)):
            os.kill(os.getpid(), signal.SIGINT)
            asked.append(2)
            os.kill(os.getpid(), signal.SIGINT)
            asked.append(3)

    with pytest.raises(KeyboardInterrupt):
        signalled_twice()
    assert asked == [1, 2]


def test_other_threads_run_as_well() -> None:
    outcomes: list[RunOutcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(simulate(session(), FixedCost())))
    thread.start()
    thread.join(60)
    assert outcomes[0].error is None
