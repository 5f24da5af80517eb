"""Engines, requests and a hand-driven loop for tests of the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.events import Admission, Event, Finished, FinishReason, TokensSampled
from twinserve.sched_core.features import StepFeatures
from twinserve.sched_core.invariants import check, check_plan
from twinserve.sched_core.plan import Idle, StepPlan, StepResult
from twinserve.sched_core.policies.registry import build_policies
from twinserve.sched_core.requests.prompt import Prompt, Segment
from twinserve.sched_core.requests.spec import RequestSpec
from twinserve.sched_core.state import SchedulerState


def make_engine(policies: Mapping[str, Any] | None = None, *, num_blocks: int = 1000, **config: Any) -> EngineCore:
    """An engine with vLLM's defaults; ``policies`` are the choices that ``build_policies`` takes."""
    settings = SchedulerConfig(num_blocks=num_blocks, **config)
    return EngineCore(settings, build_policies(**(policies or {})))


def make_request(
    request_id: int, length: int = 10, max_tokens: int = 16, *, shared: int = 0, **spec: Any
) -> RequestSpec:
    """A request of ``length`` prompt tokens, the first ``shared`` of them common to all requests made here."""
    own = Segment(1000 + request_id, 0, length - shared)
    prompt = spec.pop("prompt", Prompt((Segment(0, 0, shared), own)))
    return RequestSpec(request_id=request_id, prompt=prompt, max_tokens=max_tokens, **spec)


class FixedCost:
    """Every step takes ``step`` ns; an idle engine notices arrivals ``delay`` ns late."""

    def __init__(self, step: int = 10, delay: int = 0) -> None:
        self.step, self.delay = step, delay

    def step_ns(self, features: StepFeatures, now: int) -> int:
        return self.step

    def wake_ns(self, now: int) -> int:
        return now + self.delay


def internals(engine: EngineCore) -> SchedulerState:
    """Queue, batch and pool, for tests about them."""
    return engine._state


def tokens_of(plan: StepPlan) -> dict[int, int]:
    """Tokens that each request computes in this step, in scheduling order."""
    return dict(zip(plan.request_ids.tolist(), plan.num_new.tolist(), strict=True))


def blocks_of(engine: EngineCore, request_id: int) -> list[int]:
    return internals(engine).requests[request_id].block_ids


def free_order(engine: EngineCore) -> list[int]:
    return list(internals(engine).pool.free_blocks())


def running_ids(engine: EngineCore) -> list[int]:
    return [request.request_id for request in internals(engine).running.requests]


def waiting_ids(engine: EngineCore) -> list[int]:
    return [request.request_id for request in internals(engine).queue]


@dataclass
class Harness:
    """Drives an engine with steps of 1 ns and checks every invariant around each of them."""

    engine: EngineCore
    now: int = 0
    plans: list[StepPlan] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def add(self, *specs: RequestSpec) -> list[Admission]:
        return [self.engine.add_request(spec, self.now) for spec in specs]

    def abort(self, request_id: int) -> None:
        self.events.extend(self.engine.abort(request_id, self.now))
        check(self.engine)

    def begin(self) -> StepPlan:
        plan = self.engine.begin_step(self.now)
        assert isinstance(plan, StepPlan), "the engine is idle"
        check(self.engine)
        check_plan(self.engine, plan)
        return plan

    def finish(self, plan: StepPlan, token_ids: Sequence[int] | None = None, ended: tuple[int, ...] = ()) -> None:
        self.now += 1
        ids = None if token_ids is None else np.array(token_ids, dtype=np.int64)
        self.events.extend(self.engine.finish_step(plan.step_id, StepResult(token_ids=ids, ended=ended), self.now))
        self.plans.append(plan)
        check(self.engine)

    def step(self, token_ids: Sequence[int] | None = None, ended: tuple[int, ...] = ()) -> dict[int, int]:
        """Run one step; returns the tokens that each request computed."""
        plan = self.begin()
        self.finish(plan, token_ids, ended)
        return tokens_of(plan)

    def steps(self, count: int) -> list[dict[int, int]]:
        return [self.step() for _ in range(count)]

    def run(self, max_steps: int = 10_000) -> list[dict[int, int]]:
        """Step until the engine is idle."""
        done: list[dict[int, int]] = []
        while self.engine.has_unfinished:
            assert len(done) < max_steps, "no end in sight"
            done.append(self.step())
        assert isinstance(self.engine.begin_step(self.now), Idle)
        return done

    @property
    def finished(self) -> dict[int, FinishReason]:
        return {event.request_id: event.reason for event in self.events if isinstance(event, Finished)}

    @property
    def num_outputs(self) -> dict[int, int]:
        return {event.request_id: event.num_output_tokens for event in self.events if isinstance(event, Finished)}

    @property
    def delivered(self) -> dict[int, list[int]]:
        """Sampled ids per request, in order of delivery (steps that were given ids)."""
        tokens: dict[int, list[int]] = {}
        for event in self.events:
            if isinstance(event, TokensSampled) and event.token_ids is not None:
                for request_id, token_id in zip(event.request_ids.tolist(), event.token_ids.tolist(), strict=True):
                    tokens.setdefault(request_id, []).append(token_id)
        return tokens


def make_harness(policies: Mapping[str, str] | None = None, *, num_blocks: int = 1000, **config: Any) -> Harness:
    return Harness(make_engine(policies, num_blocks=num_blocks, **config))
