"""What the runner keeps of requests, how it pads steps for graphs, and how failing steps end a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.real_backend.cpu_engine import load_on_cpu
from tests.real_backend.tiny_qwen3 import VOCAB_SIZE
from twinserve.real_backend.engine_loader import LoadedEngine
from twinserve.real_backend.inputs.buffers import Capacity, StepBuffers
from twinserve.real_backend.inputs.input_batch import InputBatch
from twinserve.real_backend.launch.executor import Executor, StepShape
from twinserve.real_backend.launch.runner import ModelRunner
from twinserve.run_core.clock import ManualClock
from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.record import Recorder, RunRecord
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import Traffic
from twinserve.run_core.wall_clock_driver import run_in_real_time
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.dispatch import CaptureSizes, Dispatch, GraphMode
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.events import Finished
from twinserve.sched_core.plan import StepPlan, StepResult
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec, SamplingParams

CONFIG = SchedulerConfig(
    num_blocks=24,
    block_size=8,
    max_num_batched_tokens=24,
    max_num_seqs=5,
    max_model_len=128,
    enable_prefix_caching=False,
)


def load(folder: Path, config: SchedulerConfig = CONFIG) -> LoadedEngine:
    return load_on_cpu(folder, config)


def make_specs(sampling: SamplingParams, lengths: tuple[int, ...] = (5, 30, 17, 3, 21, 9, 12)) -> list[RequestSpec]:
    rng = np.random.default_rng(3)
    return [
        RequestSpec(
            request_id=index,
            prompt=Prompt.of_token_ids(rng.integers(0, VOCAB_SIZE, length).tolist()),
            max_tokens=6 + index,
            sampling=sampling,
        )
        for index, length in enumerate(lengths)
    ]


def run(
    runner: ModelRunner, specs: list[RequestSpec], config: SchedulerConfig = CONFIG, **options: object
) -> RunOutcome:
    session = Session(EngineCore(config), Traffic(specs), Recorder(keep_plans=True), **options)
    return run_in_real_time(session, runner, ManualClock(tick_ns=1000))


def tokens(record: RunRecord) -> dict[int, list[int]]:
    owners, ids = np.asarray(record.tokens["request_id"]), np.asarray(record.tokens["token_id"])
    return {owner: ids[owners == owner].tolist() for owner in sorted(set(owners.tolist()))}


@dataclass(frozen=True)
class CpuGraphs:
    """Stands in for captured graphs: runs the padded step eagerly, exactly as a capture would see it."""

    executor: Executor
    replayed: list[Dispatch]

    def upload_inputs(self) -> None:
        self.executor.expand(5, CONFIG.max_num_batched_tokens)

    def replay(self, choice: Dispatch) -> torch.Tensor:
        self.replayed.append(choice)
        shape = StepShape.of_graph(choice, max_rows=5, max_model_len=CONFIG.max_model_len)
        self.executor.expand(shape.num_rows, shape.num_tokens)
        return self.executor.forward(shape)


def with_graphs(loaded: LoadedEngine, sizes: CaptureSizes) -> tuple[ModelRunner, list[Dispatch]]:
    eager, replayed = loaded.runner, []
    inputs = InputBatch(eager._inputs.buffers, vocab_size=VOCAB_SIZE, seed=0, capture_sizes=sizes)
    runner = ModelRunner(eager._executor, inputs, eager._timer, graphs=CpuGraphs(eager._executor, replayed))
    return runner, replayed


@pytest.mark.parametrize(
    ("sizes", "modes"),
    [
        (CaptureSizes(decode=(1, 2, 4, 5)), {GraphMode.DECODE}),
        (CaptureSizes(mixed=(8, 16, 24)), {GraphMode.MIXED}),
        (CaptureSizes(decode=(2, 4), mixed=(16, 24)), {GraphMode.DECODE, GraphMode.MIXED}),
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padded_steps_give_the_tokens_of_eager_steps(
    folder: Path, sizes: CaptureSizes, modes: set[GraphMode], temperature: float
) -> None:
    specs = make_specs(SamplingParams(temperature=temperature))
    eager = run(load(folder).runner, specs).record
    runner, replayed = with_graphs(load(folder), sizes)
    assert tokens(run(runner, specs).record) == tokens(eager)
    assert {choice.mode for choice in replayed} == modes


def test_drawn_tokens_do_not_depend_on_how_the_work_is_cut(folder: Path) -> None:
    """A request's draws come from its seed and positions, not from its neighbours in the batch."""
    specs = make_specs(SamplingParams(temperature=0.8, top_p=0.9, top_k=40))
    small = SchedulerConfig(num_blocks=12, block_size=8, max_num_batched_tokens=7, max_num_seqs=2, max_model_len=128)
    wide = run(load(folder).runner, specs).record
    narrow = run(load(folder, small).runner, specs, small).record
    assert tokens(narrow) == tokens(wide)


def test_min_tokens_holds_back_the_ending_ids(folder: Path) -> None:
    everything = tuple(range(0, VOCAB_SIZE, 2))
    sampling = SamplingParams(temperature=1.0, stop_token_ids=everything, min_tokens=4)
    lengths = [len(ids) for ids in tokens(run(load(folder).runner, make_specs(sampling)).record).values()]
    assert min(lengths) == 5
    assert max(lengths) > 5


def test_a_step_may_have_no_row_that_needs_logits(folder: Path) -> None:
    record = run(load(folder).runner, make_specs(SamplingParams(temperature=0.0), (60, 5))).record
    assert record.plans[0].num_samples == 0
    assert len(tokens(record)[0]) == 6


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others(folder: Path) -> None:
    first, again, other = (
        tokens(run(load(folder).runner, make_specs(SamplingParams(temperature=1.0, seed=seed))).record)
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_nan_logits_end_the_run_with_what_has_finished(folder: Path) -> None:
    loaded = load(folder)
    weights = loaded.runner._executor._model.weights

    def poison(num_ended: int) -> None:
        weights.final_norm.fill_(torch.nan)

    outcome = run(loaded.runner, make_specs(SamplingParams(temperature=0.0)), on_progress=poison)
    assert "NaN" in str(outcome.error)
    assert outcome.record.requests["finish_reason"].count("length") == 1
    assert None in outcome.record.requests["finish_ns"]


def test_running_out_of_memory_cancels_the_step_and_keeps_what_has_finished(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(folder)
    whole = run(load(folder).runner, make_specs(SamplingParams(temperature=0.0))).record
    forward, calls = loaded.runner._executor.forward, []

    def forward_until_full(*args: object) -> torch.Tensor:
        calls.append(args)
        if len(calls) > 12:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore lines")
        return forward(*args)

    monkeypatch.setattr(loaded.runner._executor, "forward", forward_until_full)
    outcome = run(loaded.runner, make_specs(SamplingParams(temperature=0.0)))
    assert str(outcome.error).startswith("the device is out of memory while running step 12 (")
    assert "\n" not in str(outcome.error)
    assert len(outcome.record.steps["step_id"]) == 12
    finished = [reason for reason in outcome.record.requests["finish_reason"] if reason]
    assert 0 < len(finished) < len(whole.requests["request_id"])


def test_a_token_id_outside_the_vocabulary_ends_the_run_with_the_request_named(folder: Path) -> None:
    wrong = RequestSpec(request_id=9, prompt=Prompt.of_token_ids([1, VOCAB_SIZE]), max_tokens=3)
    outcome = run(load(folder).runner, [*make_specs(SamplingParams(temperature=0.0)), wrong])
    assert "request 9: its prompt has token ids outside the vocabulary of 128" in str(outcome.error)


def make_inputs(num_slots: int = 2) -> InputBatch:
    capacity = Capacity(max_tokens=16, max_rows=num_slots, max_blocks=8, num_slots=num_slots)
    return InputBatch(StepBuffers(capacity, torch.device("cpu"), filler_block=99), vocab_size=VOCAB_SIZE, seed=0)


def plans_of(config: SchedulerConfig, specs: list[RequestSpec], inputs: InputBatch) -> list[StepPlan]:
    """Drives a core with made-up tokens and hands each plan to ``inputs``, checking its tables against the core's."""
    engine, plans = EngineCore(config), []
    for spec in specs:
        engine.add_request(spec, 0)
    while engine.has_unfinished:
        plan = engine.begin_step(0)
        slots = inputs.update(plan)
        check_tables(engine, plan, inputs, slots)
        plans.append(plan)
        inputs.release(finish(engine, plan))
    return plans


def finish(engine: EngineCore, plan: StepPlan) -> list[int]:
    events = engine.finish_step(plan.step_id, StepResult(), 0)
    return [event.request_id for event in events if isinstance(event, Finished)]


def check_tables(engine: EngineCore, plan: StepPlan, inputs: InputBatch, slots: np.ndarray) -> None:
    for request_id, slot in zip(plan.request_ids.tolist(), slots.tolist(), strict=True):
        blocks = engine._state.requests[request_id].block_ids
        table = inputs._block_ids[slot].tolist()
        assert table[: len(blocks)] == list(blocks)
        assert set(table[len(blocks) :]) <= {99}


def test_block_tables_follow_the_cores_through_growth_preemption_and_reuse() -> None:
    config = SchedulerConfig(num_blocks=6, block_size=8, max_num_batched_tokens=16, max_num_seqs=2, max_model_len=64)
    specs = [RequestSpec(request_id=index, prompt=Prompt.of_stream(index, 14), max_tokens=20) for index in range(5)]
    plans = plans_of(config, specs, make_inputs())
    assert any(plan.preempted for plan in plans)


def test_finished_requests_free_their_slots() -> None:
    inputs = make_inputs()
    config = SchedulerConfig(num_blocks=40, block_size=8, max_num_seqs=2, max_model_len=64)
    specs = [RequestSpec(request_id=index, prompt=Prompt.of_stream(index, 9), max_tokens=2) for index in range(9)]
    plans_of(config, specs, inputs)
    assert sorted(inputs._free_slots) == [0, 1]
    assert (inputs._block_ids == 99).all()
