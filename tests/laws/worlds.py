"""Random engines, requests and misfortunes, and one way to play them through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.laws.fake_model import FakeModel
from twinserve.real_backend.inputs.token_ids import prompt_token_ids
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.events import Event, Finished, TokensSampled
from twinserve.sched_core.invariants import check, check_plan, state_of
from twinserve.sched_core.plan import Idle, StepPlan
from twinserve.sched_core.policies.interfaces import Rows, StepDraft
from twinserve.sched_core.policies.registry import build_policies, names
from twinserve.sched_core.requests.prompt import Piece, Prompt, Segment, TokenIds
from twinserve.sched_core.requests.spec import RequestSpec, SamplingParams

VOCAB_SIZE = 1000
MAX_STEPS = 5000


def law(max_examples: int) -> settings:
    """Settings of a law: the same examples on every machine."""
    return settings(
        derandomize=True,
        deadline=None,
        max_examples=max_examples,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


@dataclass(frozen=True, kw_only=True)
class World:
    """An engine, what arrives at which step boundary, and what goes wrong at which step."""

    config: SchedulerConfig
    policies: Mapping[str, Any] = field(default_factory=dict)
    arrivals: tuple[tuple[int, RequestSpec], ...]
    aborts: tuple[tuple[int, int, bool], ...] = ()  # (step boundary, request id, while the step is in flight)
    cancels: frozenset[int] = frozenset()


def configs() -> st.SearchStrategy[SchedulerConfig]:
    return st.builds(
        SchedulerConfig,
        num_blocks=st.integers(2, 14),
        block_size=st.sampled_from([1, 2, 3, 4]),
        max_num_batched_tokens=st.integers(1, 24),
        max_num_seqs=st.integers(1, 5),
        max_model_len=st.integers(8, 60),
        enable_chunked_prefill=st.booleans(),
        enable_prefix_caching=st.sampled_from([True, True, True, False]),
        long_prefill_token_threshold=st.sampled_from([0, 0, 2, 5]),
        long_prefill_token_threshold_adaptive=st.booleans(),
        scheduler_reserve_full_isl=st.booleans(),
        watermark=st.sampled_from([0.0, 0.0, 0.2, 0.6]),
        max_head_bypass=st.sampled_from([0, 0, 1, 3]),
        prefill_schedule_interval=st.sampled_from([1, 1, 2, 4]),
    )


class Capped:
    """A composition of calls with caps; then everything that is left, so that nothing waits for ever."""

    def __init__(self, calls: list[tuple[Rows, int]], admit_at_most: int) -> None:
        self._calls = calls
        self._admit_at_most = admit_at_most

    def compose(self, step: StepDraft) -> None:
        for rows, at_most in self._calls:
            before = step.budget
            step.run(rows, at_most)
            assert before - step.budget <= at_most
        before = step.budget
        step.admit(self._admit_at_most)
        assert before - step.budget <= self._admit_at_most
        if step.is_empty:
            step.admit()


def capped() -> st.SearchStrategy[dict[str, Any]]:
    """Some running row can always go on; an idle step admits what it may."""
    calls = st.lists(st.tuples(st.sampled_from(Rows), st.integers(0, 9)), max_size=3)
    going_on = st.tuples(st.just(Rows.ALL), st.integers(1, 9))
    return st.fixed_dictionaries(
        {
            "use": st.just(Capped),
            "calls": st.builds(lambda some, last: [*some, last], calls, going_on),
            "admit_at_most": st.integers(0, 9),
        }
    )


def policy_names() -> st.SearchStrategy[dict[str, Any]]:
    built_in = names()
    return st.fixed_dictionaries(
        {seam: st.sampled_from(built_in[seam]) for seam in ("order", "victim")}
        | {"policy": st.one_of(st.sampled_from(built_in["policy"]), capped())}
    )


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    """Few streams and small offsets, so that prefixes are often shared; some explicit ids."""
    pieces: list[Piece] = []
    for _ in range(draw(st.integers(1, 3))):
        stream, length = draw(st.integers(0, 2)), draw(st.integers(1, 12))
        offset = draw(st.sampled_from([0, 0, 0, 3]))
        segment = Segment(stream, offset, length)
        explicit = draw(st.sampled_from([False, False, True]))
        pieces.append(_explicit(segment) if explicit else segment)
    return Prompt(pieces)


def _explicit(segment: Segment) -> TokenIds:
    ids = Prompt.of_token_ids(prompt_token_ids(Prompt((segment,)), VOCAB_SIZE).tolist())
    piece = ids.pieces[0]
    assert isinstance(piece, TokenIds)
    return piece


@st.composite
def requests(draw: st.DrawFn, request_id: int) -> RequestSpec:
    return RequestSpec(
        request_id=request_id,
        prompt=draw(prompts()),
        max_tokens=draw(st.integers(1, 12)),
        arrival_ns=request_id,
        priority=draw(st.integers(0, 2)),
        predicted_output_len=draw(st.one_of(st.none(), st.integers(1, 12))),
        cache_salt=draw(st.sampled_from(["", "", "salt", "other"])),
        sampling=SamplingParams(eos_token_ids=draw(st.sampled_from([(), tuple(range(0, VOCAB_SIZE, 9))]))),
    )


@st.composite
def worlds(draw: st.DrawFn, *, misfortunes: bool = True, fixed: Mapping[str, Any] | None = None) -> World:
    config = draw(configs())
    if fixed:
        config = SchedulerConfig(**{name: getattr(config, name) for name in SchedulerConfig.__slots__} | dict(fixed))
    count = draw(st.integers(1, 8))
    arrivals = tuple((draw(st.integers(0, 12)), draw(requests(i))) for i in range(count))
    abort = st.tuples(st.integers(0, 20), st.integers(0, count - 1), st.booleans())
    return World(
        config=config,
        policies=draw(policy_names()),
        arrivals=tuple(sorted(arrivals, key=lambda arrival: arrival[0])),
        aborts=tuple(draw(st.lists(abort, max_size=3))) if misfortunes else (),
        cancels=frozenset(draw(st.lists(st.integers(0, 30), max_size=4))) if misfortunes else frozenset(),
    )


@st.composite
def crowds(draw: st.DrawFn) -> World:
    """Long prompts that are chunked in a crowded pool, and urgent short ones that take their blocks in mid-step."""
    chunk = draw(st.sampled_from([4, 6]))
    num_long, num_short = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    long_prompts = [Prompt.of_stream(draw(st.integers(0, 1)), draw(st.integers(16, 26))) for _ in range(num_long)]
    short_prompts = [Prompt.of_stream(2 + i, draw(st.integers(1, 3))) for i in range(num_short)]
    specs = [
        RequestSpec(request_id=i, prompt=prompt, max_tokens=draw(st.integers(3, 12)), priority=9 if i < num_long else 0)
        for i, prompt in enumerate([*long_prompts, *short_prompts])
    ]
    return World(
        config=SchedulerConfig(
            num_blocks=draw(st.integers(13, 18)),
            block_size=2,
            max_num_batched_tokens=20,
            max_num_seqs=5,
            long_prefill_token_threshold=chunk,
            scheduler_reserve_full_isl=False,
        ),
        policies={"policy": draw(st.sampled_from(["mixed", "decode_first"])), "victim": "lowest_priority"},
        arrivals=tuple((0, spec) for spec in specs),
        cancels=frozenset(draw(st.lists(st.integers(0, 12), max_size=3))),
    )


@dataclass
class Played:
    """What came of a world. ``boundaries[i]`` is the step boundary at which plan ``i`` was made."""

    world: World
    engine: EngineCore
    plans: list[StepPlan] = field(default_factory=list)
    boundaries: list[int] = field(default_factory=list)
    tokens: dict[int, list[int]] = field(default_factory=dict)
    token_times: dict[int, list[int]] = field(default_factory=dict)
    finished: dict[int, Finished] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)

    def take(self, events: tuple[Event, ...], now: int) -> None:
        for event in events:
            if isinstance(event, TokensSampled):
                assert event.token_ids is not None
                for request_id, token in zip(event.request_ids.tolist(), event.token_ids.tolist(), strict=True):
                    self.tokens.setdefault(request_id, []).append(token)
                    self.token_times.setdefault(request_id, []).append(now)
            elif isinstance(event, Finished):
                assert event.request_id not in self.finished, "a request ended twice"
                self.finished[event.request_id] = event

    @property
    def log(self) -> list[bytes]:
        return [plan.to_bytes() for plan in self.plans]


def play(world: World) -> Played:
    """Run a world to its end on the fake model, checking every invariant at every step."""
    engine = EngineCore(world.config, build_policies(**world.policies))
    model = FakeModel(world.config.num_blocks, world.config.block_size, VOCAB_SIZE)
    played = Played(world, engine)
    arrivals = list(world.arrivals)
    boundary = 0
    while arrivals or engine.has_unfinished:
        assert boundary < MAX_STEPS, "no progress"
        _arrive(played, arrivals, boundary)
        _abort(played, boundary, in_flight=False)
        _step(played, model, boundary)
        boundary += 1
    assert isinstance(engine.begin_step(boundary), Idle)
    return played


def _arrive(played: Played, arrivals: list[tuple[int, RequestSpec]], boundary: int) -> None:
    while arrivals and arrivals[0][0] <= boundary:
        spec = arrivals.pop(0)[1]
        if not played.engine.add_request(spec, boundary).accepted:
            played.refused.add(spec.request_id)


def _abort(played: Played, boundary: int, *, in_flight: bool) -> None:
    for when, request_id, during in played.world.aborts:
        if when == boundary and during == in_flight:
            events = played.engine.abort(request_id, boundary)
            assert not (in_flight and events), "an abort takes effect when the step in flight ends"
            played.take(events, boundary)


def _step(played: Played, model: FakeModel, boundary: int) -> None:
    engine = played.engine
    before = state_of(engine) if boundary in played.world.cancels else None
    plan = engine.begin_step(boundary)
    check(engine)
    if isinstance(plan, Idle):
        assert not engine.has_unfinished
        return
    if before is not None:
        plan = _cancel_and_plan_again(played, model, plan, before, boundary)
    check_plan(engine, plan)
    _abort(played, boundary, in_flight=True)
    played.plans.append(plan)
    played.boundaries.append(boundary)
    played.take(engine.finish_step(plan.step_id, model.run(plan), boundary + 1), boundary + 1)
    check(engine)


def _cancel_and_plan_again(
    played: Played, model: FakeModel, plan: StepPlan, before: dict[str, Any], boundary: int
) -> StepPlan:
    model.spoil(plan, {block for block, key in enumerate(before["keys"]) if key is not None})
    assert played.engine.cancel_step(plan.step_id, boundary) == ()
    assert state_of(played.engine) == before, "a cancelled step leaves no trace"
    check(played.engine)
    again = played.engine.begin_step(boundary)
    assert isinstance(again, StepPlan)
    assert again.to_bytes() == plan.to_bytes(), "planning again gives the same plan"
    return again
