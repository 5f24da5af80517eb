"""CUDA graphs of whole forward passes, one for each capture size.

A graph replays launches on fixed addresses: its inputs are the static fields of ``StepBuffers``, padded up to the
size it was captured for, and its output is its own hidden-state tensor.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from sched_core.dispatch import CaptureSizes, Dispatch, GraphMode


class StepGraphs:
    """Captured forward passes.

    ``prepare(choice)`` writes a harmless step of that size to the host's fields; ``forward(choice)`` brings them to the
    device, launches the step and returns its hidden states, without waiting for the device.
    """

    def __init__(
        self,
        prepare: Callable[[Dispatch], None],
        forward: Callable[[Dispatch], torch.Tensor],
        sizes: CaptureSizes,
    ) -> None:
        self._graphs: dict[Dispatch, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        pool = torch.cuda.graph_pool_handle()
        for choice in _largest_first(sizes):
            torch.cuda.synchronize()
            prepare(choice)
            self._graphs[choice] = _capture(forward, choice, pool)

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


def _capture(
    forward: Callable[[Dispatch], torch.Tensor], choice: Dispatch, pool: object
) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):  # compiles and tunes kernels, which a capture cannot
        forward(choice)
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        hidden = forward(choice)
    return graph, hidden
