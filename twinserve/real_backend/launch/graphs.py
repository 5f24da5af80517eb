"""CUDA graphs of whole forward passes, one for each capture size.

A graph replays launches on fixed addresses: its inputs are the static fields of ``StepBuffers``, padded up to the
size it was captured for, and its output is its own hidden-state tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch

from twinserve.real_backend.inputs.batch import FlatBatch, dummy_batch
from twinserve.real_backend.inputs.buffers import StepBuffers
from twinserve.real_backend.launch.executor import Executor, StepShape
from twinserve.real_backend.launch.timer import DeviceTimer
from twinserve.sched_core.dispatch import CaptureSizes, Dispatch, GraphMode

_Result = TypeVar("_Result")


class StepGraphs:
    """Captured forward passes, and the start of an eager one.

    ``prepare(choice)`` writes a harmless step of that size to the host's fields; ``upload_inputs()`` uploads the fields
    of any step; ``forward(choice)`` does that, launches the step and returns its hidden states. None of them waits for
    the device.
    """

    def __init__(
        self,
        prepare: Callable[[Dispatch], None],
        upload_inputs: Callable[[], None],
        forward: Callable[[Dispatch], torch.Tensor],
        sizes: CaptureSizes,
    ) -> None:
        self._graphs: dict[Dispatch, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        pool = torch.cuda.graph_pool_handle()
        self._inputs, _ = _capture(upload_inputs, pool)
        for choice in _largest_first(sizes):
            torch.cuda.synchronize()
            prepare(choice)
            self._graphs[choice] = _capture(partial(forward, choice), pool)

    def upload_inputs(self) -> None:
        """What comes before an eager pass: one launch instead of three, at the time when the device waits for each."""
        self._inputs.replay()

    def replay(self, choice: Dispatch) -> torch.Tensor:
        """Launches the graph of ``choice``; its hidden states [padded tokens, H] are valid until the next replay."""
        graph, hidden = self._graphs[choice]
        graph.replay()
        return hidden


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

    def upload_inputs(num_rows: int = capacity.max_rows, num_tokens: int = capacity.max_tokens) -> None:
        timer.start()
        buffers.upload()
        executor.expand(num_rows, num_tokens)

    def forward(choice: Dispatch) -> torch.Tensor:
        shape = StepShape.of_graph(choice, max_rows=capacity.max_rows, max_model_len=max_model_len)
        upload_inputs(shape.num_rows, shape.num_tokens)
        return executor.forward(shape)

    return StepGraphs(prepare, upload_inputs, forward, sizes)


def _largest_first(sizes: CaptureSizes) -> list[Dispatch]:
    """All graphs, the biggest first, so that the smaller ones reuse its memory."""
    choices = [Dispatch(mode=GraphMode.DECODE, num_padded_tokens=size) for size in sizes.decode]
    choices += [Dispatch(mode=GraphMode.MIXED, num_padded_tokens=size) for size in sizes.mixed]
    return sorted(choices, key=lambda choice: -choice.num_padded_tokens)


def _capture(launch: Callable[[], _Result], pool: object) -> tuple[torch.cuda.CUDAGraph, _Result]:
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):  # compiles and tunes kernels, which a capture cannot
        launch()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = launch()
    return graph, result
