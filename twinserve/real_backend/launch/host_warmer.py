"""Keeps what runs between two steps in the processor's caches while the device is at work.

Scheduling and preparing inputs take a quarter of a millisecond of Python, once in ten or twenty. On a shared host their
code and data are pushed out in between, and take two to three times as long: the device waits for it at every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from twinserve.real_backend.inputs.buffers import Capacity, StepBuffers
from twinserve.real_backend.inputs.input_batch import InputBatch
from twinserve.real_backend.sampling.sampler import check_sampled
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.dispatch import CaptureSizes
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.events import Finished
from twinserve.sched_core.plan import Idle, StepResult
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec

_NUM_SEQS = 8
_MODEL_LEN = 128
_OUTPUT_LEN = 24
"""Tokens. As many steps in one, on average, start a request: the code for that stays warm as well."""


class HostWarmer:
    """Runs the host's part of steps on an engine of its own, a few short requests on the CPU, and computes nothing.

    ``scheduler`` and ``capture_sizes`` are those of the engine that is to be kept warm.
    """

    def __init__(self, scheduler: SchedulerConfig, capture_sizes: CaptureSizes) -> None:
        self._config = _small(scheduler)
        self._capture_sizes = capture_sizes
        self._prompt_len = self._config.max_model_len // 2
        self.restart()

    def restart(self) -> None:
        """Begins anew: an interrupted step cannot be continued."""
        self._engine = EngineCore(self._config)
        self._inputs = _inputs(self._config, self._capture_sizes)
        self._num_requests = 0
        for _ in range(self._config.max_num_seqs):
            self._send()
        self._parts = self._steps()

    def advance(self) -> None:
        """The next part of a step; a part takes less than a tenth of a millisecond when it is warm."""
        next(self._parts)

    def _steps(self) -> Iterator[None]:
        engine, inputs = self._engine, self._inputs
        while True:
            plan = engine.begin_step(0)
            yield
            if isinstance(plan, Idle):
                continue
            step = inputs.prepare(plan)
            yield
            inputs.buffers.fill(step.batch, step.choice)
            yield
            token_ids = np.zeros(plan.num_samples, dtype=np.int64)
            check_sampled(token_ids)
            inputs.append_sampled(step, token_ids)
            events = engine.finish_step(plan.step_id, StepResult(token_ids=token_ids), 0)
            finished = [event.request_id for event in events if isinstance(event, Finished)]
            inputs.release(finished)
            for _ in finished:
                self._send()
            yield

    def _send(self) -> None:
        number = self._num_requests
        self._num_requests += 1
        spec = RequestSpec(
            request_id=number,
            prompt=Prompt.of_stream(number, 1 + number % self._prompt_len),
            max_tokens=_OUTPUT_LEN + number % _NUM_SEQS,  # so that requests do not all end together
        )
        self._engine.add_request(spec, 0)


def _small(scheduler: SchedulerConfig) -> SchedulerConfig:
    num_seqs, model_len = min(scheduler.max_num_seqs, _NUM_SEQS), min(scheduler.max_model_len, _MODEL_LEN)
    blocks_each = -(-model_len // scheduler.block_size)
    return replace(scheduler, max_num_seqs=num_seqs, max_model_len=model_len, num_blocks=2 * num_seqs * blocks_each)


def _inputs(config: SchedulerConfig, capture_sizes: CaptureSizes) -> InputBatch:
    capacity = Capacity.of(config, capture_sizes)
    buffers = StepBuffers(capacity, torch.device("cpu"), filler_block=config.num_blocks)
    return InputBatch(buffers, vocab_size=2, seed=0, capture_sizes=capture_sizes)
