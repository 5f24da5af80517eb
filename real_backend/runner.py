"""Turns step plans into launches: flat batch, graph or eager, sampling, and one wait for the device per step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from real_backend.batch import FlatBatch, build_batch, decodes_first
from real_backend.buffers import StepBuffers
from real_backend.device_errors import clear_errors
from real_backend.driver import StepOutput
from real_backend.executor import Executor, StepShape
from real_backend.graphs import StepGraphs
from real_backend.request_state import RequestStates
from real_backend.sampler import SamplingTensors, check_sampled, sample
from real_backend.sampling_table import SamplingRows
from real_backend.timer import DeviceTimer
from sched_core.dispatch import NO_GRAPHS, CaptureSizes, Dispatch, GraphMode, dispatch
from sched_core.plan import Ints, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _InFlight:
    """A launched step: the slots of its sampling rows and the number of tokens they knew."""

    plan: StepPlan
    slots: Ints
    lengths: Ints


class ModelRunner:
    """Implements ``driver.Runner`` on one device.

    ``graphs`` holds what ``capture_sizes`` promises; without them every step is eager.
    """

    def __init__(
        self,
        executor: Executor,
        buffers: StepBuffers,
        states: RequestStates,
        timer: DeviceTimer,
        *,
        capture_sizes: CaptureSizes = NO_GRAPHS,
        graphs: StepGraphs | None = None,
    ) -> None:
        self._executor = executor
        self._buffers = buffers
        self._states = states
        self._timer = timer
        self._graphs = graphs
        self.capture_sizes = capture_sizes
        pinned = buffers.device["input_ids"].is_cuda
        self._token_ids = torch.empty(buffers.capacity.max_rows, dtype=torch.int64, pin_memory=pinned)
        self._token_ids_on_host = self._token_ids.numpy()
        self._in_flight: _InFlight | None = None

    @torch.inference_mode()
    def launch(self, plan: StepPlan) -> None:
        """Starts the step. Raises EngineError when the device is out of memory."""
        with clear_errors(_describe(plan)):
            slots = self._states.apply(plan)
            batch = build_batch(plan, decodes_first(plan), self._states.tables, slots)
            lengths = (plan.num_computed + plan.num_new)[plan.samples]
            sampling = self._states.sampling.rows(slots[plan.samples], lengths)
            choice = dispatch(plan.num_tokens, plan.num_rows, self.capture_sizes)
            self._buffers.fill(batch, sampling, choice)
            self._launch(batch, sampling, choice)
            self._timer.stop()
        self._in_flight = _InFlight(plan=plan, slots=slots[plan.samples], lengths=lengths)

    def collect(self) -> StepOutput:
        """Waits for the step. Raises EngineError for logits that are NaN or infinite, or a failed device."""
        flight = self._in_flight
        if flight is None:
            raise RuntimeError("collect without launch")
        self._in_flight = None
        with clear_errors(_describe(flight.plan)):
            device_ns = self._timer.wait()
        token_ids = self._token_ids_on_host[: flight.plan.num_samples].copy()
        check_sampled(token_ids)
        self._states.append_tokens(flight.slots, flight.lengths, token_ids)
        return StepOutput(token_ids=token_ids, device_ns=device_ns)

    def release(self, request_ids: Iterable[int]) -> None:
        self._states.release(request_ids)

    def _launch(self, batch: FlatBatch, sampling: SamplingRows, choice: Dispatch) -> None:
        count = len(batch.logits_tokens)
        hidden = self._hidden(batch, choice, count)
        if count:
            logits = self._executor.logits(hidden)
            token_ids = sample(logits, sampling_tensors(self._buffers.device, sampling))
            self._token_ids[:count].copy_(token_ids, non_blocking=True)

    def _hidden(self, batch: FlatBatch, choice: Dispatch, num_samples: int) -> torch.Tensor:
        if choice.mode is GraphMode.EAGER or self._graphs is None:
            self._timer.start()
            self._buffers.upload()
            return self._executor.forward(StepShape.of_batch(batch), num_samples)
        return self._executor.select(self._graphs.replay(choice), num_samples)


def sampling_tensors(fields: dict[str, torch.Tensor], rows: SamplingRows) -> SamplingTensors:
    """The sampler's view of the rows that ``StepBuffers`` brought to the device."""
    count = len(rows)
    pairs = np.array(rows.forbidden, dtype=np.int64).reshape(-1, 2)
    forbidden = torch.from_numpy(pairs).to(fields["seed"].device).T if len(pairs) else None
    return SamplingTensors(
        temperature=fields["temperature"][:count],
        top_p=fields["top_p"][:count],
        top_k=fields["top_k"][:count],
        seed=fields["seed"][:count],
        position=fields["sample_position"][:count],
        all_greedy=rows.parameters.all_greedy,
        any_truncated=rows.parameters.any_truncated,
        forbidden_rows=None if forbidden is None else forbidden[0],
        forbidden_tokens=None if forbidden is None else forbidden[1],
    )


def _describe(plan: StepPlan) -> str:
    return f"running step {plan.step_id} ({plan.num_tokens} tokens in {plan.num_rows} rows)"
