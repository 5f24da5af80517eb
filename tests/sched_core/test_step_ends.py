"""What a step leaves behind: ids, free blocks and cached blocks, and what plans and invariants say of them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import free_order, internals, make_harness, make_request
from twinserve.sched_core.blocks.cache_index import CacheIndex
from twinserve.sched_core.errors import SchedulerError
from twinserve.sched_core.events import Finished, FinishReason
from twinserve.sched_core.invariants import InvariantError, check, state_of
from twinserve.sched_core.journal import Journal
from twinserve.sched_core.plan import StepPlan, StepResult
from twinserve.sched_core.requests.prompt import Prompt, Segment
from twinserve.sched_core.requests.spec import SamplingParams


@pytest.mark.parametrize(("salt", "hit"), [("a", 16), ("b", 0), ("", 0)])
def test_a_first_block_that_is_completed_by_decoding_carries_its_salt(salt: str, hit: int) -> None:
    harness = make_harness()
    harness.add(make_request(0, prompt=Prompt.of_stream(3, 10), max_tokens=10, output_stream=7, cache_salt="a"))
    harness.run()
    again = Prompt((Segment(3, 0, 10), Segment(7, 0, 10)))
    harness.add(make_request(1, prompt=again, cache_salt=salt))
    assert harness.begin().started[0].num_cached_tokens == hit


def _last_finished(events: list[object]) -> Finished:
    return [event for event in events if isinstance(event, Finished)][-1]


def test_a_request_aborted_between_steps_ends_with_all_ids_delivered() -> None:
    harness = make_harness()
    harness.add(make_request(0))
    harness.step(token_ids=[5])
    harness.step(token_ids=[6])
    harness.abort(0)
    assert _last_finished([*harness.events]).output_token_ids == (5, 6)


def test_a_request_ended_by_the_backend_keeps_its_last_id() -> None:
    harness = make_harness()
    harness.add(make_request(0), make_request(1))
    harness.step(token_ids=[5, 6])
    harness.step(token_ids=[7, 8], ended=(1,))
    finished = _last_finished([*harness.events])
    assert (finished.request_id, finished.output_token_ids) == (1, (6, 8))


def test_rows_that_end_together_free_their_blocks_in_row_order_whatever_the_reasons() -> None:
    harness = make_harness(num_blocks=6, enable_prefix_caching=False)
    stops = SamplingParams(eos_token_ids=(9,))
    harness.add(make_request(0, sampling=stops), make_request(1, max_tokens=1), make_request(2))
    harness.step(token_ids=[9, 1, 1], ended=())
    assert harness.finished == {0: FinishReason.STOP, 1: FinishReason.LENGTH}
    assert free_order(harness.engine)[:2] == [1, 0]


def test_requests_aborted_in_one_step_end_in_order_of_id() -> None:
    harness = make_harness(max_num_seqs=1)
    harness.add(*(make_request(i) for i in (0, 64, 8, 1)))
    plan = harness.begin()
    for request_id in (64, 8, 1):
        harness.engine.abort(request_id, harness.now)
    harness.finish(plan)
    assert list(harness.finished) == [1, 8, 64]


def test_a_bypass_does_not_cut_a_prompt_under_prefill_first() -> None:
    harness = make_harness({"policy": "prefill_first"}, num_blocks=10, max_head_bypass=2, max_num_batched_tokens=32)
    harness.add(make_request(0, 10), make_request(1, 160, max_tokens=1), make_request(2, 30))
    assert harness.step() == {0: 10}


def test_a_resumed_request_that_outgrew_the_budget_is_cut_with_chunking_off() -> None:
    harness = make_harness(
        num_blocks=6, max_num_batched_tokens=32, enable_chunked_prefill=False, enable_prefix_caching=False
    )
    harness.add(make_request(0, 30, max_tokens=40), make_request(1, 30, max_tokens=40))
    harness.run()
    assert harness.num_outputs == {0: 40, 1: 40}
    assert any(started.resumed and plan.num_new[-1] == 32 for plan in harness.plans for started in plan.started)


def test_sweeping_the_index_keeps_the_oldest_block_of_a_key() -> None:
    index = CacheIndex(4, Journal())
    for block in (1, 3, 2):
        index.register([block], [b"kept"])
    for number in range(20):
        index.forget([0])
        index.register([0], [b"%d" % number])
    index.compact()
    assert len(index._first) <= 4
    assert index.as_dict()[b"kept"] == (1, 3, 2)
    assert index.find(b"kept") == 1


def test_lists_of_the_pool_stay_short_in_an_endless_run() -> None:
    harness = make_harness(num_blocks=4)
    pool = internals(harness.engine).pool
    for i in range(60):
        harness.add(make_request(i, 40, max_tokens=2))
        harness.run()
        assert len(pool._free) <= 4 * pool.num_blocks
        assert len(pool.cache._first) <= 5 * pool.num_blocks


def _plan(
    preempted: tuple[int, ...], rows: tuple[int, ...], computed: tuple[int, ...], new: tuple[int, ...]
) -> StepPlan:
    columns = [np.array(values, dtype=np.int64) for values in (rows, computed, new)]
    samples, no_blocks = np.ones(len(rows), dtype=bool), np.zeros(len(rows), dtype=np.int64)
    none = np.zeros(0, dtype=np.int64)
    return StepPlan(0, *columns, samples, no_blocks, none, (), preempted, sum(new), len(rows), 0, 1, 9)


def test_bytes_of_a_plan_tell_preempted_requests_from_rows() -> None:
    one = _plan((), (5,), (3,), (7,))._replace(num_new_blocks=np.array([1]), new_block_ids=np.array([0]))
    other = _plan((5,), (3,), (7,), (1,))
    assert one.to_bytes() != other.to_bytes()


def test_bytes_of_a_plan_tell_which_blocks_were_hit() -> None:
    harness = make_harness()
    harness.add(make_request(0, 33, shared=32, max_tokens=1))
    harness.run()
    harness.add(make_request(1, 40, shared=32))
    plan = harness.begin()
    assert (plan.num_hit_blocks, plan.hit_block_ids) == ((2,), (0, 1))
    (start,) = plan.started
    other = plan._replace(started=(start._replace(block_ids=(4, *start.block_ids[1:])),))
    assert other.to_bytes() != plan.to_bytes()


def test_a_cached_block_that_cannot_be_found_breaks_an_invariant() -> None:
    harness = make_harness()
    harness.add(make_request(0, 40))
    harness.step()
    check(harness.engine)
    internals(harness.engine).pool.cache._first.clear()
    with pytest.raises(InvariantError, match="is cached but cannot be found"):
        check(harness.engine)


@pytest.mark.parametrize("ended", [(2,), (5,), (-1,), (0, 0), (0, 2)])
def test_ends_that_are_no_rows_are_refused_before_anything_changes(ended: tuple[int, ...]) -> None:
    harness = make_harness()
    harness.add(make_request(0), make_request(1))
    plan = harness.begin()
    before = (state_of(harness.engine), harness.engine.stats())
    with pytest.raises(SchedulerError, match="ended should hold distinct positions among 2 sampling rows"):
        harness.engine.finish_step(plan.step_id, StepResult(ended=ended), 1)
    assert (state_of(harness.engine), harness.engine.stats()) == before
    harness.finish(plan, ended=(1,))
    assert list(harness.finished) == [1]
