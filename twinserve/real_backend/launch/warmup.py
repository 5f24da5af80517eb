"""Steps without requests: the largest one, to measure memory, and one per CUDA graph, to capture it."""

from __future__ import annotations

import torch

from twinserve.real_backend.attention.base import AttentionBackend
from twinserve.real_backend.inputs.batch import FlatBatch, dummy_batch
from twinserve.real_backend.inputs.buffers import Capacity, StepBuffers
from twinserve.real_backend.inputs.sampling_table import SamplingRows
from twinserve.real_backend.launch.executor import Executor, StepShape, allocate_kv_caches
from twinserve.real_backend.launch.graphs import StepGraphs
from twinserve.real_backend.launch.runner import sampling_tensors
from twinserve.real_backend.launch.timer import DeviceTimer
from twinserve.real_backend.model.model import Qwen3Model
from twinserve.real_backend.sampling.sampler import sample
from twinserve.sched_core.dispatch import CaptureSizes, Dispatch, GraphMode


@torch.inference_mode()
def run_largest_step(model: Qwen3Model, attention: AttentionBackend, capacity: Capacity, block_size: int) -> None:
    """An eager step of ``capacity``'s size, every row sampling, on a KV cache of one page that stays empty."""
    buffers = StepBuffers(capacity, model.device, filler_block=0)
    executor = Executor(model, attention, buffers, allocate_kv_caches(model, 1, block_size))
    num_rows = min(capacity.max_rows, capacity.max_tokens)
    batch = dummy_batch(capacity.max_tokens, num_rows, buffers.filler_slot)
    _run(executor, buffers, batch, _sampling(num_rows, truncated=True))


@torch.inference_mode()
def capture_graphs(
    executor: Executor, buffers: StepBuffers, timer: DeviceTimer, sizes: CaptureSizes, *, max_model_len: int
) -> StepGraphs:
    """One graph per capture size; needs the KV cache that the engine will run with.

    A graph also starts the timer and copies the step's inputs to the device, which saves the host two calls.
    """
    capacity = buffers.capacity

    def step_of(choice: Dispatch) -> FlatBatch:
        size = choice.num_padded_tokens
        num_rows = size if choice.mode is GraphMode.DECODE else -(-size // max_model_len)
        return dummy_batch(size, num_rows, buffers.filler_slot)

    def prepare(choice: Dispatch) -> None:
        buffers.fill(step_of(choice), choice)

    def bring_inputs(num_rows: int = capacity.max_rows, num_tokens: int = capacity.max_tokens) -> None:
        timer.start()
        buffers.upload()
        executor.expand(num_rows, num_tokens)

    def forward(choice: Dispatch) -> torch.Tensor:
        shape = StepShape.of_graph(choice, max_rows=capacity.max_rows, max_model_len=max_model_len)
        bring_inputs(shape.num_rows, shape.num_tokens)
        return executor.forward(shape)

    return StepGraphs(prepare, bring_inputs, forward, sizes)


@torch.inference_mode()
def warm_up(executor: Executor, buffers: StepBuffers) -> None:
    """Eager steps of every kind (one row, small prefill, decodes, largest): kernels compile before the clock runs."""
    capacity = buffers.capacity
    most_rows = min(capacity.max_rows, capacity.max_tokens)
    small_prefill = min(32, capacity.max_tokens)
    for num_tokens, num_rows in ((1, 1), (small_prefill, 1), (most_rows, most_rows), (capacity.max_tokens, most_rows)):
        batch = dummy_batch(num_tokens, num_rows, buffers.filler_slot)
        for truncated in (False, True):
            torch.cuda.synchronize()
            _run(executor, buffers, batch, _sampling(num_rows, truncated=truncated))


def _run(executor: Executor, buffers: StepBuffers, batch: FlatBatch, sampling: SamplingRows) -> None:
    buffers.fill(batch, Dispatch(mode=GraphMode.EAGER, num_padded_tokens=batch.num_tokens))
    buffers.upload()
    executor.expand(batch.num_rows, batch.num_tokens)
    hidden = executor.forward(StepShape.of_batch(batch), batch.num_rows)
    sample(executor.logits(hidden), sampling_tensors(buffers.device, sampling))


def _sampling(num_rows: int, *, truncated: bool) -> SamplingRows:
    return SamplingRows(count=num_rows, all_greedy=False, any_truncated=truncated)
