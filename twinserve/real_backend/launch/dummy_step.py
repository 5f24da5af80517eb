"""Eager steps without requests: the largest one, whose memory is measured, and one of every kind to warm up."""

from __future__ import annotations

import torch

from twinserve.real_backend.attention.base import AttentionBackend
from twinserve.real_backend.inputs.batch import FlatBatch, dummy_batch
from twinserve.real_backend.inputs.buffers import Capacity, StepBuffers
from twinserve.real_backend.inputs.sampling_table import SamplingRows
from twinserve.real_backend.launch.executor import Executor, StepShape, allocate_kv_caches
from twinserve.real_backend.launch.runner import sampling_tensors
from twinserve.real_backend.model.model import Qwen3Model
from twinserve.real_backend.sampling.sampler import sample
from twinserve.sched_core.dispatch import Dispatch, GraphMode


@torch.inference_mode()
def run_largest_step(model: Qwen3Model, attention: AttentionBackend, capacity: Capacity, block_size: int) -> None:
    """An eager step of ``capacity``'s size, every row sampling, on a KV cache of one page that stays empty."""
    buffers = StepBuffers(capacity, model.device, filler_block=0)
    executor = Executor(model, attention, buffers, allocate_kv_caches(model, 1, block_size))
    num_rows = min(capacity.max_rows, capacity.max_tokens)
    batch = dummy_batch(capacity.max_tokens, num_rows, buffers.filler_slot)
    _run(executor, buffers, batch, _sampling(num_rows, truncated=True))


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
