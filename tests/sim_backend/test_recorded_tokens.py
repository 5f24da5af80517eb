"""Recorded ids are handed out per request, in order, wherever its steps fall."""

from __future__ import annotations

import numpy as np

from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.plan import StepPlan, StepResult
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec
from twinserve.sim_backend.recorded_tokens import RecordedTokens


def plans(max_num_seqs: int) -> list[StepPlan]:
    """Two requests of three tokens each, together or one after the other."""
    engine = EngineCore(SchedulerConfig(num_blocks=20, block_size=4, max_num_seqs=max_num_seqs))
    for request_id in (2, 4):
        engine.add_request(RequestSpec(request_id=request_id, prompt=Prompt.of_stream(request_id, 5), max_tokens=3), 0)
    made = []
    while engine.has_unfinished:
        made.append(engine.begin_step(0))
        engine.finish_step(made[-1].step_id, StepResult(), 0)
    return made


def test_each_request_gets_its_own_ids_however_the_steps_fall() -> None:
    for max_num_seqs in (1, 2):
        source = RecordedTokens([4, 2, 4, 2, 4, 2], [40, 20, 41, 21, 42, 22])
        drawn: dict[int, list[int]] = {4: [], 2: []}
        for plan in plans(max_num_seqs):
            for request_id, token_id in zip(plan.request_ids.tolist(), source(plan).tolist(), strict=True):
                drawn[request_id].append(token_id)
        assert drawn == {4: [40, 41, 42], 2: [20, 21, 22]}


def test_ids_that_were_never_delivered_are_zero() -> None:
    source = RecordedTokens(np.array([2]), np.array([20]))
    first, second = plans(2)[:2]
    assert source(first).tolist() == [20, 0]
    assert source(second).tolist() == [0, 0]


def test_a_recording_without_tokens_gives_zeros() -> None:
    assert RecordedTokens([], [])(plans(2)[0]).tolist() == [0, 0]
