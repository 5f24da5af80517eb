"""The step state machine: what may be called when, and what it answers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import internals, make_engine, make_harness, make_request, running_ids, tokens_of
from twinserve.sched_core.errors import SchedulerError
from twinserve.sched_core.events import FinishReason, Preempted, RefusalReason
from twinserve.sched_core.invariants import state_of
from twinserve.sched_core.plan import Idle, StepResult
from twinserve.sched_core.requests.prompt import Prompt


def test_engine_without_requests_is_idle() -> None:
    assert make_engine().begin_step(0) == Idle(wake_at=None)


def test_second_step_needs_the_end_of_the_first() -> None:
    harness = make_harness()
    harness.add(make_request(0))
    plan = harness.begin()
    with pytest.raises(SchedulerError, match="step 0 is still in flight"):
        harness.engine.begin_step(0)
    harness.finish(plan)
    with pytest.raises(SchedulerError, match="step 0 is not in flight"):
        harness.engine.finish_step(plan.step_id, StepResult(), harness.now)


def test_rejected_result_leaves_the_step_in_flight() -> None:
    harness = make_harness()
    harness.add(make_request(0))
    plan = harness.begin()
    with pytest.raises(SchedulerError, match="samples 1 rows, got 2 ids"):
        harness.engine.finish_step(plan.step_id, StepResult(token_ids=np.array([1, 2])), 1)
    with pytest.raises(SchedulerError, match="not in flight"):
        harness.engine.finish_step(plan.step_id + 1, StepResult(), 1)
    harness.finish(plan, token_ids=[7])
    assert harness.delivered == {0: [7]}


def test_time_never_runs_backwards() -> None:
    engine = make_engine()
    engine.begin_step(10)
    with pytest.raises(SchedulerError, match="time runs backwards"):
        engine.add_request(make_request(0), 9)


@pytest.mark.parametrize(
    ("request_fields", "config", "reason"),
    [
        ({"prompt": Prompt(())}, {}, RefusalReason.EMPTY_PROMPT),
        ({"max_tokens": 0}, {}, RefusalReason.NO_OUTPUT),
        ({"length": 64}, {"max_model_len": 64}, RefusalReason.EXCEEDS_MODEL_LEN),
        ({"length": 33}, {"num_blocks": 2}, RefusalReason.EXCEEDS_KV_CACHE),
        (
            {"length": 33},
            {"enable_chunked_prefill": False, "max_num_batched_tokens": 32},
            RefusalReason.EXCEEDS_TOKEN_BUDGET,
        ),
    ],
)
def test_request_that_could_never_run_is_refused(
    request_fields: dict[str, object], config: dict[str, int], reason: RefusalReason
) -> None:
    harness = make_harness(**config)
    (answer,) = harness.add(make_request(0, **request_fields))  # type: ignore[arg-type]
    assert (answer.refusal, answer.accepted) == (reason, False)
    assert answer.detail
    assert not harness.engine.has_unfinished


def test_id_in_use_is_refused_and_may_be_used_again_later() -> None:
    harness = make_harness()
    harness.add(make_request(0, max_tokens=1))
    assert harness.add(make_request(0))[0].refusal == RefusalReason.DUPLICATE_ID
    harness.run()
    assert harness.add(make_request(0))[0].accepted


def test_running_requests_count_towards_the_queue_limit() -> None:
    """vLLM: with one running and one waiting, a limit of 2 is reached."""
    harness = make_harness(max_num_queued_reqs=2, max_num_seqs=1)
    harness.add(make_request(0))
    harness.step()
    answers = harness.add(make_request(1), make_request(2))
    assert [answer.refusal for answer in answers] == [None, RefusalReason.QUEUE_FULL]


def test_full_queue_refuses() -> None:
    harness = make_harness(max_num_queued_reqs=2, max_num_seqs=1)
    answers = harness.add(*(make_request(i) for i in range(3)))
    assert [answer.refusal for answer in answers] == [None, None, RefusalReason.QUEUE_FULL]


def test_longest_prompts_that_can_run_are_accepted() -> None:
    harness = make_harness(num_blocks=2, max_model_len=33)
    harness.add(make_request(0, 32))
    harness.run()
    assert harness.num_outputs == {0: 1}


def test_requests_may_arrive_while_a_step_is_in_flight() -> None:
    harness = make_harness()
    harness.add(make_request(0))
    plan = harness.begin()
    harness.add(make_request(1))
    harness.finish(plan)
    assert harness.step() == {0: 1, 1: 10}


def test_arrival_during_a_cancelled_step_stays_queued() -> None:
    harness = make_harness()
    harness.add(make_request(0))
    plan = harness.begin()
    harness.add(make_request(1))
    harness.engine.cancel_step(plan.step_id, harness.now)
    assert harness.step() == {0: 10, 1: 10}


def test_abort_takes_effect_when_the_step_in_flight_ends() -> None:
    harness = make_harness()
    harness.add(make_request(0), make_request(1), make_request(2))
    plan = harness.begin()
    assert harness.engine.abort(1, harness.now) == ()
    assert running_ids(harness.engine) == [0, 1, 2]
    harness.finish(plan)
    assert running_ids(harness.engine) == [0, 2]
    assert harness.finished == {1: FinishReason.ABORTED}


def test_abort_during_a_cancelled_step_is_told_by_the_cancel() -> None:
    harness = make_harness()
    harness.add(make_request(0), make_request(1))
    plan = harness.begin()
    harness.engine.abort(0, harness.now)
    (event,) = harness.engine.cancel_step(plan.step_id, harness.now)
    assert (event.request_id, event.reason) == (0, FinishReason.ABORTED)  # type: ignore[union-attr]
    assert harness.step() == {1: 10}


@pytest.mark.parametrize("request_id", [0, 5])
def test_abort_of_a_request_that_is_gone_or_unknown_does_nothing(request_id: int) -> None:
    harness = make_harness()
    harness.add(make_request(0, max_tokens=1))
    harness.run()
    before = harness.events.copy()
    harness.abort(request_id)
    assert harness.events == before


def test_waiting_request_can_be_aborted() -> None:
    harness = make_harness(max_num_seqs=1)
    harness.add(*(make_request(i) for i in range(3)))
    harness.step()
    harness.abort(1)
    harness.run()
    assert harness.num_outputs == {0: 16, 1: 0, 2: 16}


def test_preempted_request_can_be_aborted_in_the_step_that_preempted_it() -> None:
    harness = make_harness(num_blocks=6)
    harness.add(make_request(0, 40, max_tokens=14), make_request(1, 40, max_tokens=14))
    harness.steps(9)
    plan = harness.begin()
    assert plan.preempted == (1,)
    harness.engine.abort(1, harness.now)
    harness.finish(plan)
    assert Preempted(request_id=1) in harness.events
    assert harness.finished == {1: FinishReason.ABORTED}
    harness.run()
    assert harness.num_outputs[0] == 14


def test_cancelled_preemption_gives_the_place_back() -> None:
    harness = make_harness(num_blocks=6)
    harness.add(make_request(0, 40, max_tokens=14), make_request(1, 40, max_tokens=14))
    harness.steps(9)
    before = (state_of(harness.engine), harness.engine.stats())
    plan = harness.begin()
    assert plan.preempted == (1,)
    harness.engine.cancel_step(plan.step_id, harness.now)
    assert (state_of(harness.engine), harness.engine.stats()) == before
    again = harness.begin()
    assert again.to_bytes() == plan.to_bytes()
    assert again.preempted == (1,)


def test_only_decode_gives_way_while_prefills_are_held_back() -> None:
    """The decode that preempts itself leaves an unfinished prefill alone, which then runs in the same step."""
    harness = make_harness(
        num_blocks=6,
        block_size=4,
        max_num_batched_tokens=16,
        prefill_schedule_interval=4,
        long_prefill_token_threshold=12,
    )
    harness.add(make_request(0, 20, max_tokens=1), make_request(1, 4, max_tokens=20))
    assert harness.step() == {0: 12, 1: 4}
    for _ in range(20):
        if not harness.engine.has_unfinished:
            break
        harness.step()
    assert harness.num_outputs == {0: 1, 1: 20}


def test_plan_columns_describe_every_row() -> None:
    harness = make_harness(block_size=4, max_num_batched_tokens=16)
    harness.add(make_request(0, 6), make_request(1, 30, shared=0))
    plan = harness.begin()
    assert tokens_of(plan) == {0: 6, 1: 10}
    assert plan.samples.tolist() == [True, False]
    assert plan.num_new_blocks.tolist() == [2, 3]
    assert plan.new_block_ids.tolist() == [0, 1, 2, 3, 4]
    assert [start.block_ids for start in plan.started] == [(0, 1), (2, 3, 4)]
    assert (plan.num_tokens, plan.num_samples, plan.num_running, plan.num_waiting) == (16, 1, 2, 0)
    assert plan.num_free_blocks == internals(harness.engine).pool.num_free == 995
