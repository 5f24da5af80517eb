"""CUDA graphs of whole forward passes, one for each capture size.

A graph replays launches on fixed addresses: its inputs are the static fields of ``StepBuffers``, padded up to the
size it was captured for, and its output is its own hidden-state tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch

from twinserve.sched_core.dispatch import CaptureSizes, Dispatch, GraphMode

_Result = TypeVar("_Result")


class StepGraphs:
    """Captured forward passes, and the start of an eager one.

    ``prepare(choice)`` writes a harmless step of that size to the host's fields; ``bring_inputs()`` brings the fields
    of any step to the device; ``forward(choice)`` does that, launches the step and returns its hidden states. None of
    them waits for the device.
    """

    def __init__(
        self,
        prepare: Callable[[Dispatch], None],
        bring_inputs: Callable[[], None],
        forward: Callable[[Dispatch], torch.Tensor],
        sizes: CaptureSizes,
    ) -> None:
        self._graphs: dict[Dispatch, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        pool = torch.cuda.graph_pool_handle()
        self._inputs, _ = _capture(bring_inputs, pool)
        for choice in _largest_first(sizes):
            torch.cuda.synchronize()
            prepare(choice)
            self._graphs[choice] = _capture(partial(forward, choice), pool)

    def bring_inputs(self) -> None:
        """What comes before an eager pass: one launch instead of three, at the time when the device waits for each."""
        self._inputs.replay()

    def replay(self, choice: Dispatch) -> torch.Tensor:
        """Launches the graph of ``choice``; its hidden states [padded tokens, H] are valid until the next replay."""
        graph, hidden = self._graphs[choice]
        graph.replay()
        return hidden


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
