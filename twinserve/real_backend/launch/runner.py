"""Turns step plans into launches: flat batch, graph or eager, sampling, and one wait for the device per step."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from math import inf

import numpy as np
import torch

from twinserve.real_backend.device_errors import clear_errors
from twinserve.real_backend.inputs.input_batch import InputBatch, StepInputs
from twinserve.real_backend.inputs.sampling_table import SamplingRows
from twinserve.real_backend.launch.executor import Executor, StepShape
from twinserve.real_backend.launch.graphs import StepGraphs
from twinserve.real_backend.launch.host_warmer import HostWarmer
from twinserve.real_backend.launch.timer import DeviceTimer
from twinserve.real_backend.sampling.sampler import SamplingTensors, check_sampled, sample
from twinserve.run_core.wall_clock_driver import StepOutput
from twinserve.sched_core.dispatch import CaptureSizes, Dispatch, GraphMode
from twinserve.sched_core.plan import StepPlan
from twinserve.sched_core.requests.spec import RequestSpec

_QUIET_FROM = 0.98
"""Of a step's expected time: from then on the host does nothing but watch for its end, so as not to be late."""


class ModelRunner:
    """Implements ``driver.Runner`` on one device.

    ``graphs`` holds what the capture sizes of ``inputs`` promise; without them every step is eager. ``warmer`` is what
    the host does while it waits for the device.
    """

    def __init__(
        self,
        executor: Executor,
        inputs: InputBatch,
        timer: DeviceTimer,
        *,
        graphs: StepGraphs | None = None,
        warmer: HostWarmer | None = None,
    ) -> None:
        self._executor = executor
        self._inputs = inputs
        self._timer = timer
        self._graphs = graphs
        self._warmer = warmer
        buffers = inputs.buffers
        pinned = buffers.device["input_ids"].is_cuda
        self._token_ids = torch.empty(buffers.capacity.max_rows, dtype=torch.int64, pin_memory=pinned)
        self._token_ids_on_host = self._token_ids.numpy()
        self._in_flight: StepInputs | None = None
        self._launched_ns = 0
        self._last_device_ns: dict[Dispatch, int] = {}

    @property
    def capture_sizes(self) -> CaptureSizes:
        return self._inputs.capture_sizes

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> None:
        """Starts the step. Raises EngineError when the device is out of memory."""
        with clear_errors(_describe(plan)):
            step = self._inputs.prepare(plan)
            self._inputs.buffers.fill(step.batch, step.choice)
            self._launched_ns = time.perf_counter_ns()
            self._launch(step)
            self._timer.stop()
        self._in_flight = step

    def collect(self) -> StepOutput:
        """Waits for the step. Raises EngineError for logits that are NaN or infinite, or a failed device."""
        step = self._in_flight
        if step is None:
            raise RuntimeError("collect without launch")
        self._in_flight = None
        with clear_errors(_describe(step.plan)):
            device_ns = self._wait(step.choice)
        token_ids = self._token_ids_on_host[: step.plan.num_samples].copy()
        check_sampled(token_ids)
        self._inputs.append_sampled(step, token_ids)
        return StepOutput(token_ids=token_ids, device_ns=device_ns)

    def expect(self, spec: RequestSpec) -> None:
        self._inputs.prefetch.add(spec)

    def release(self, request_ids: Iterable[int]) -> None:
        self._inputs.release(request_ids)

    def reset(self) -> None:
        """Forgets every request and the launch in flight, and clears the KV cache; the device is done afterwards.

        A device that no longer works is left for the next launch to tell.
        """
        with suppress(Exception):
            self._executor.clear_kv_cache()
        self._in_flight = None
        self._inputs.forget_all()
        if self._warmer is not None:
            self._warmer.restart()

    def _wait(self, choice: Dispatch) -> int | None:
        """Uses the time for what the next steps need, until shortly before the end as the last such step had it."""
        if self._warmer is not None:
            quiet_from = self._launched_ns + _QUIET_FROM * self._last_device_ns.get(choice, inf)
            while not self._timer.has_stopped():
                if time.perf_counter_ns() < quiet_from and not self._inputs.prefetch.advance():
                    self._warmer.advance()
        device_ns = self._timer.wait()
        if device_ns is not None:
            self._last_device_ns[choice] = device_ns
        return device_ns

    def _launch(self, step: StepInputs) -> None:
        count = step.sampling.count
        hidden = self._hidden(step, count)
        if count:
            logits = self._executor.logits(hidden)
            token_ids = sample(logits, sampling_tensors(self._inputs.buffers.device, step.sampling))
            self._token_ids[:count].copy_(token_ids, non_blocking=True)

    def _hidden(self, step: StepInputs, num_samples: int) -> torch.Tensor:
        graphs = self._graphs
        if graphs is not None and step.choice.mode is not GraphMode.EAGER:
            return self._executor.select(graphs.replay(step.choice), num_samples)
        if graphs is not None:
            graphs.upload_inputs()
        else:
            self._timer.start()
            self._inputs.buffers.upload()
            self._executor.expand(step.batch.num_rows, step.batch.num_tokens)
        return self._executor.forward(StepShape.of_batch(step.batch), num_samples)


def sampling_tensors(fields: dict[str, torch.Tensor], rows: SamplingRows) -> SamplingTensors:
    """The sampler's view of the rows that ``expand_rows`` worked out."""
    count = rows.count
    pairs = np.array(rows.forbidden, dtype=np.int64).reshape(-1, 2)
    forbidden = torch.from_numpy(pairs).to(fields["seed"].device).T if len(pairs) else None
    return SamplingTensors(
        temperature=fields["row_temperature"][:count],
        top_p=fields["row_top_p"][:count],
        top_k=fields["row_top_k"][:count],
        seed=fields["row_seed"][:count],
        position=fields["sample_position"][:count],
        all_greedy=rows.all_greedy,
        any_truncated=rows.any_truncated,
        forbidden_rows=None if forbidden is None else forbidden[0],
        forbidden_tokens=None if forbidden is None else forbidden[1],
    )


def _describe(plan: StepPlan) -> str:
    return f"running step {plan.step_id} ({plan.num_tokens} tokens in {plan.num_rows} rows)"
