"""Logits of a run in which every request is made to continue with given tokens.

Two ways of running the same requests can then be compared position by position: a token that came out differently
cannot lead them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch

from twinserve.real_backend.engine_loader import LoadedEngine
from twinserve.real_backend.launch.executor import Executor
from twinserve.real_backend.launch.runner import ModelRunner
from twinserve.run_core.clock import ManualClock
from twinserve.run_core.record import RunRecord
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import Traffic
from twinserve.run_core.wall_clock_driver import StepOutput, run_in_real_time
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.plan import StepPlan
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec, SamplingParams

Logits = dict[tuple[int, int], torch.Tensor]


@dataclass(frozen=True)
class Script:
    """Prompts, and the tokens that are sampled after each, whatever the model says."""

    prompts: tuple[tuple[int, ...], ...]
    answers: tuple[tuple[int, ...], ...]

    @classmethod
    def random(cls, prompt_lens: Iterable[int], num_outputs: int, vocab_size: int) -> Script:
        rng = np.random.default_rng(11)
        prompts = tuple(tuple(rng.integers(0, vocab_size, length).tolist()) for length in prompt_lens)
        answers = tuple(tuple(rng.integers(0, vocab_size, num_outputs).tolist()) for _ in prompts)
        return cls(prompts, answers)

    def token(self, request_id: int, position: int) -> int:
        return self.answers[request_id][position - len(self.prompts[request_id])]

    def traffic(self) -> Traffic:
        sampling = SamplingParams(temperature=0.0)
        return Traffic(
            [
                RequestSpec(
                    request_id=index,
                    prompt=Prompt.of_token_ids(prompt),
                    max_tokens=len(self.answers[index]),
                    sampling=sampling,
                )
                for index, prompt in enumerate(self.prompts)
            ]
        )


@dataclass
class RecordingExecutor:
    """Keeps the logits of the last step."""

    inner: Executor
    last: torch.Tensor | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def logits(self, hidden_rows: torch.Tensor) -> torch.Tensor:
        self.last = self.inner.logits(hidden_rows)
        return self.last


@dataclass
class ForcedRunner:
    """Runs plans as ``runner`` does, then writes the script's tokens over the sampled ones."""

    runner: ModelRunner
    script: Script
    logits: Logits = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._executor = self.runner._executor = RecordingExecutor(self.runner._executor)

    def launch(self, plan: StepPlan) -> None:
        self._plan = plan
        self.runner.launch(plan)

    def collect(self) -> StepOutput:
        step, plan = self.runner._in_flight, self._plan
        output = self.runner.collect()
        request_ids = plan.request_ids[plan.samples]
        positions = (plan.num_computed + plan.num_new)[plan.samples]
        keys = list(zip(request_ids.tolist(), positions.tolist(), strict=True))
        forced = np.array([self.script.token(*key) for key in keys], dtype=np.int64)
        if keys:
            rows = self._executor.last.float().cpu()
            self.logits.update(zip(keys, rows, strict=True))
            self.runner._inputs.append_sampled(step, forced)
        return StepOutput(token_ids=forced, device_ns=output.device_ns)

    def expect(self, spec: RequestSpec) -> None:
        self.runner.expect(spec)

    def release(self, request_ids: Iterable[int]) -> None:
        self.runner.release(request_ids)


def forced_logits(loaded: LoadedEngine, script: Script) -> tuple[Logits, RunRecord]:
    """Logits by (request id, position of the token that they choose), and the record of the run."""
    runner = ForcedRunner(loaded.runner, script)
    engine, sizes = EngineCore(loaded.scheduler), loaded.runner.capture_sizes
    session = Session(engine, script.traffic(), capture_sizes=sizes, check=True)
    return runner.logits, run_in_real_time(session, runner, ManualClock(tick_ns=1000)).complete()


def assert_same_choices(found: Logits, wanted: Logits, *, relative: float, gap: float) -> None:
    """Logits within ``relative`` (norm of a row's difference), and the same best token wherever ``wanted`` has one
    that leads by more than ``gap``.
    """
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        difference = torch.linalg.vector_norm(found[key] - row) / torch.linalg.vector_norm(row)
        assert difference <= relative, f"{key}: {difference:.2e}"
        best, second = row.topk(2).values.tolist()
        if best - second > gap:
            assert int(found[key].argmax()) == int(row.argmax()), key
