"""Batches in a steady state, and one step of them: what the core's benchmarks time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from tests.builders import make_engine, make_request
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.plan import Ints, StepPlan, StepResult

LONG = 1_000_000


@dataclass
class Steps:
    """Runs one step per call, as a driver with a model does: each sampling row gets a real token id.

    ``before`` is what arrives between steps; only ``begin_step`` and ``finish_step`` are timed by the benchmarks.
    """

    engine: EngineCore
    before: Callable[[int], None] = lambda now: None
    now: int = 0
    ids: Ints = field(default_factory=lambda: np.arange(4096) % 997)

    def arrive(self) -> None:
        self.now += 1
        self.before(self.now)

    def step(self) -> StepPlan:
        plan = self.engine.begin_step(self.now)
        if not isinstance(plan, StepPlan):
            raise RuntimeError("the benchmark ran out of work")
        self.engine.finish_step(plan.step_id, StepResult(token_ids=self.ids[: plan.num_samples]), self.now)
        return plan


def decodes(num_requests: int, *, prompt_len: int = 512) -> Steps:
    """``num_requests`` decodes with prefix caching and blocks of 16; their block edges are spread over 16 steps."""
    engine = make_engine(
        num_blocks=num_requests * 400 + 1000,
        max_num_batched_tokens=1 << 20,
        max_num_seqs=num_requests,
        max_model_len=2 * LONG,
    )
    steps = Steps(engine)
    for i in range(num_requests):
        engine.add_request(make_request(i, prompt_len + i % 16, LONG), 0)
    while steps.step().num_tokens > num_requests:
        pass
    return steps


def decodes_with_chunk(num_decodes: int = 255, budget: int = 2048) -> Steps:
    """Decodes and, in every step, a chunk of one endless prompt that fills the budget."""
    engine = make_engine(
        num_blocks=400_000,
        max_num_batched_tokens=budget,
        max_num_seqs=num_decodes + 1,
        max_model_len=8 * LONG,
    )
    steps = Steps(engine)
    for i in range(num_decodes):
        engine.add_request(make_request(i, 8 + i % 16, LONG), 0)
    while steps.step().num_samples < num_decodes:
        pass
    engine.add_request(make_request(num_decodes, 4 * LONG, LONG), steps.now)
    steps.step()
    return steps


def churn(num_live: int = 256) -> Steps:
    """``num_live`` requests, each of 1,024 shared and 128 own prompt tokens and 64 outputs, replaced as they end."""
    engine = make_engine(
        num_blocks=num_live * 100,
        max_num_batched_tokens=2048,
        max_num_seqs=num_live,
        max_model_len=LONG,
    )
    ids = count()

    def top_up(now: int) -> None:
        while len(engine._state.requests) < num_live:
            engine.add_request(make_request(next(ids), 1152, 64, shared=1024), now)

    steps = Steps(engine, before=top_up)
    for _ in range(300):
        steps.arrive()
        steps.step()
    return steps


def kv_pressure(num_requests: int = 256) -> Steps:
    """More requests than 9,000 blocks hold: preemptions and resumptions."""
    engine = make_engine(num_blocks=9000, max_num_batched_tokens=2048, max_num_seqs=num_requests, max_model_len=LONG)
    ids = count()

    def top_up(now: int) -> None:
        while len(engine._state.requests) < num_requests:
            engine.add_request(make_request(next(ids), 512, 2000), now)

    steps = Steps(engine, before=top_up)
    for _ in range(400):
        steps.arrive()
        steps.step()
    return steps
