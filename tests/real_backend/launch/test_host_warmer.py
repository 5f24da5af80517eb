"""What the host does while it waits: steps that keep it warm, prompts made ahead, and a quiet end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.real_backend.cpu_engine import load_on_cpu
from tests.real_backend.tiny_qwen3 import VOCAB_SIZE
from twinserve.real_backend.engine_loader import LoadedEngine
from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.inputs import prompt_prefetch
from twinserve.real_backend.inputs.prompt_prefetch import PromptPrefetch
from twinserve.real_backend.inputs.token_ids import prompt_token_ids
from twinserve.real_backend.launch.host_warmer import HostWarmer
from twinserve.real_backend.launch.runner import ModelRunner
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.dispatch import NO_GRAPHS, default_capture_sizes
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.plan import StepResult
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec, SamplingParams

CONFIG = SchedulerConfig(num_blocks=40, block_size=8, max_num_batched_tokens=24, max_num_seqs=4, max_model_len=64)


@settings(max_examples=30, deadline=None)
@given(
    block_size=st.sampled_from([1, 16, 256]),
    max_model_len=st.sampled_from([2, 9, 4096]),
    max_num_seqs=st.sampled_from([1, 3, 256]),
    budget=st.sampled_from([256, 8192]),
    interval=st.sampled_from([1, 4]),
    caching=st.booleans(),
    has_graphs=st.booleans(),
)
def test_a_warmer_starts_and_ends_requests_for_ever_whatever_the_engine(
    block_size: int,
    max_model_len: int,
    max_num_seqs: int,
    budget: int,
    interval: int,
    caching: bool,
    has_graphs: bool,
) -> None:
    scheduler = SchedulerConfig(
        num_blocks=1000,
        block_size=block_size,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        prefill_schedule_interval=interval,
        enable_prefix_caching=caching,
    )
    sizes = default_capture_sizes("mixed", max_num_seqs, budget) if has_graphs else NO_GRAPHS
    warmer = HostWarmer(scheduler, sizes)
    first = warmer._num_requests
    for _ in range(1200):
        warmer.advance()
    assert warmer._num_requests > first + 5


class SlowDevice:
    """A timer whose steps are seen to end at the third look, having taken ``device_ns``."""

    def __init__(self, device_ns: int) -> None:
        self.device_ns = device_ns
        self.looks = 0

    def start(self) -> None:
        return

    def stop(self) -> None:
        self.looks = 0

    def has_stopped(self) -> bool:
        self.looks += 1
        return self.looks > 2

    def wait(self) -> int:
        assert self.looks == 3
        return self.device_ns


class Spare:
    """Counts the parts of steps that kept the host warm."""

    def __init__(self) -> None:
        self.parts = 0

    def advance(self) -> None:
        self.parts += 1


def run_steps(loaded: LoadedEngine, device_ns: int, count: int, *, expected: bool = False) -> tuple[Spare, ModelRunner]:
    """``count`` decode steps of one request on a device that takes ``device_ns``."""
    spare, one = Spare(), loaded.runner
    runner = ModelRunner(one._executor, one._inputs, SlowDevice(device_ns), warmer=spare)
    engine = EngineCore(loaded.scheduler)
    for request_id in (0, 1):
        spec = RequestSpec(request_id=request_id, prompt=Prompt.of_stream(request_id, 5), max_tokens=30)
        if request_id == 0:
            engine.add_request(spec, 0)
        elif expected:
            runner.expect(spec)
    for _ in range(count):
        plan = engine.begin_step(0)
        runner.launch(plan)
        engine.finish_step(plan.step_id, StepResult(token_ids=runner.collect().token_ids), 0)
    return spare, runner


def test_the_host_keeps_warm_until_the_device_is_done(folder: Path) -> None:
    spare, _ = run_steps(load_on_cpu(folder, CONFIG), device_ns=3_600_000_000_000, count=4)
    assert spare.parts == 4 * 2


def test_the_host_only_watches_when_a_step_is_about_to_end(folder: Path) -> None:
    """By the time that the last such step took: the prefill and the first decode step know of none."""
    spare, _ = run_steps(load_on_cpu(folder, CONFIG), device_ns=0, count=6)
    assert spare.parts == 2 * 2


def test_prompts_are_made_before_the_host_keeps_warm(folder: Path) -> None:
    spare, runner = run_steps(load_on_cpu(folder, CONFIG), device_ns=3_600_000_000_000, count=1, expected=True)
    assert spare.parts == 1
    assert not runner._inputs.prefetch.advance()


def spec_of(request_id: int, length: int) -> RequestSpec:
    return RequestSpec(request_id=request_id, prompt=Prompt.of_stream(request_id, length), max_tokens=4)


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    num_made=st.integers(0, 10),
    dropped=st.sets(st.integers(0, 7)),
)
def test_prompt_ids_do_not_depend_on_when_they_were_made(lengths: list[int], num_made: int, dropped: set[int]) -> None:
    prompts, specs = PromptPrefetch(VOCAB_SIZE), [spec_of(index, length) for index, length in enumerate(lengths)]
    for spec in specs:
        prompts.add(spec)
    assert [prompts.advance() for _ in range(num_made)].count(True) == min(num_made, len(specs))
    for request_id in dropped:
        prompts.drop(request_id)
    for spec in specs:
        assert np.array_equal(prompts.take(spec), prompt_token_ids(spec.prompt, VOCAB_SIZE))
    assert (prompts._pending, prompts._token_ids, prompts._num_tokens) == ({}, {}, 0)


def test_no_more_prompts_are_made_than_are_soon_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_prefetch, "_MAX_PREFETCHED_TOKENS", 10)
    prompts = PromptPrefetch(VOCAB_SIZE)
    for index in range(5):
        prompts.add(spec_of(index, 6))
    assert [prompts.advance() for _ in range(4)] == [True, True, False, False]
    prompts.take(spec_of(0, 6))
    assert prompts.advance()


def test_an_id_outside_the_vocabulary_is_named_when_its_request_starts_and_not_before() -> None:
    prompts = PromptPrefetch(VOCAB_SIZE)
    wrong = RequestSpec(
        request_id=3,
        prompt=Prompt.of_token_ids([1, VOCAB_SIZE]),
        max_tokens=2,
        sampling=SamplingParams(temperature=0.0),
    )
    prompts.add(wrong)
    assert prompts.advance()
    with pytest.raises(EngineError, match="request 3: its prompt has token ids outside the vocabulary"):
        prompts.take(wrong)
