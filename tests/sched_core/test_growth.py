"""What a step costs does not grow with the queue, the prefix or the batch: counted, not timed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.builders import Harness, internals, make_engine, make_harness, make_request
from twinserve.sched_core.blocks.block_manager import BlockManager
from twinserve.sched_core.blocks.cache_index import CacheIndex
from twinserve.sched_core.plan import StepPlan, StepResult
from twinserve.sched_core.policies.interfaces import Candidate
from twinserve.sched_core.policies.victim import LowestPriority
from twinserve.sched_core.requests.prompt import Prompt, Segment
from twinserve.sched_core.requests.request import Request


def count_calls(patch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    """A list that gets an entry with every call of ``owner.name``."""
    calls: list[str] = []
    original = getattr(owner, name)

    def counted(*args: object, **options: object) -> object:
        calls.append(name)
        return original(*args, **options)

    patch.setattr(owner, name, counted)
    return calls


def chain(seed: int) -> Prompt:
    """A prompt of which others share some of the first blocks."""
    rng = random.Random(seed)
    shared = rng.choice((0, 8, 16, 40))
    return Prompt((Segment(rng.randrange(3), 0, shared), Segment(1000 + seed, 0, rng.randrange(1, 60))))


def decisions(seed: int) -> list[bytes]:
    """Every plan of a random world with a full pool: shared prefixes, bypass, preemptions, aborts, cancelled steps."""
    rng = random.Random(seed)
    order = {"order": rng.choice(("fcfs", "priority")), "victim": rng.choice(("last", "lowest_priority"))}
    engine = make_engine(
        order,
        num_blocks=rng.randrange(14, 40),
        block_size=8,
        max_num_seqs=rng.randrange(2, 8),
        max_num_batched_tokens=rng.choice((16, 64, 256)),
        max_head_bypass=rng.choice((0, 1, 3, 50)),
        max_model_len=110,
        watermark=rng.choice((0.0, 0.1)),
        scheduler_reserve_full_isl=rng.random() < 0.8,
    )
    harness, plans, number = Harness(engine), [], 0
    for _ in range(150):
        for _ in range(rng.choice((0, 0, 1, 3))):
            spec = make_request(
                number, prompt=chain(rng.randrange(60)), max_tokens=rng.randrange(1, 30), priority=rng.randrange(3)
            )
            harness.add(spec)
            number += 1
        if number and rng.random() < 0.1:
            harness.abort(rng.randrange(number))
        if not engine.has_unfinished:
            continue
        plan = harness.begin()
        plans.append(plan.to_bytes())
        if rng.random() < 0.15:
            engine.cancel_step(plan.step_id, harness.now)
        else:
            harness.finish(plan)
    return plans


@pytest.mark.parametrize("seed", range(60))
def test_attempts_that_are_left_out_would_have_failed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered = decisions(seed)
    monkeypatch.setattr(BlockManager, "is_blocked", lambda self, request: False)
    monkeypatch.setattr("twinserve.sched_core.admitting.Admitter._nobody_passes", lambda self, head: False)
    assert decisions(seed) == remembered


def lookups_of_blocked_head(num_blocks: int, patch: pytest.MonkeyPatch) -> int:
    """Blocks looked up in 100 decode steps while a head with a long cached prefix waits."""
    prefix = Segment(1, 0, 16 * num_blocks)
    harness = make_harness(num_blocks=num_blocks + 50, max_num_batched_tokens=10**6, max_model_len=10**6)
    harness.add(make_request(0, prompt=Prompt((prefix, Segment(2, 0, 16 * 20))), max_tokens=150))
    harness.step()
    harness.add(make_request(1, prompt=Prompt((prefix, Segment(3, 0, 16 * 40))), max_tokens=5))
    harness.step()
    with patch.context() as context:
        calls = count_calls(context, CacheIndex, "find")
        for _ in range(100):
            plan = harness.engine.begin_step(harness.now)
            assert isinstance(plan, StepPlan)
            harness.engine.finish_step(plan.step_id, StepResult(), harness.now)
    assert len(internals(harness.engine).queue) == 1
    return len(calls)


def test_a_blocked_head_is_not_looked_up_again_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lookups_of_blocked_head(40, monkeypatch) == lookups_of_blocked_head(400, monkeypatch) <= 5


def lookups_of_blocked_queue(num_waiting: int, patch: pytest.MonkeyPatch) -> int:
    """Prefix lookups in 50 decode steps with ``num_waiting`` requests that may pass the head and find no blocks."""
    harness = make_harness(num_blocks=20, max_head_bypass=10**6, max_model_len=10**5)
    harness.add(make_request(0, 16 * 15, max_tokens=70))
    harness.step()
    harness.add(*(make_request(i, 16 * 10, max_tokens=5) for i in range(1, num_waiting + 1)))
    harness.step()
    with patch.context() as context:
        calls = count_calls(context, BlockManager, "is_blocked")
        lookups = count_calls(context, BlockManager, "find_hits")
        harness.steps(50)
    assert len(internals(harness.engine).queue) == num_waiting
    return len(calls) + len(lookups)


def test_requests_that_could_pass_a_blocked_head_are_not_tried_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lookups_of_blocked_queue(20, monkeypatch) == lookups_of_blocked_queue(400, monkeypatch) <= 60


def test_lowest_priority_makes_no_object_per_running_row(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make_harness({"order": "priority", "victim": "lowest_priority"}, num_blocks=60, block_size=4)
    harness.add(*(make_request(i, 6, max_tokens=40, priority=i % 3) for i in range(30)))
    made = count_calls(monkeypatch, Candidate, "__init__")
    harness.run()
    assert internals(harness.engine).running.size == 0
    assert any(plan.preempted for plan in harness.plans)
    assert made == []


@pytest.mark.parametrize("seed", range(5))
def test_lowest_priority_chooses_the_same_from_any_sequence(seed: int) -> None:
    rng = random.Random(seed)
    specs = [make_request(i, priority=rng.randrange(3), arrival_ns=rng.randrange(4)) for i in range(20)]
    candidates: Sequence[Candidate] = [Candidate(request=Request(spec), num_computed=1, num_tokens=2) for spec in specs]
    worst = max(range(20), key=lambda i: (specs[i].priority, specs[i].arrival_ns, i))
    assert LowestPriority().choose(candidates) == worst
