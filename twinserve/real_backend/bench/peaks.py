"""What the device and its host can do at most: matrix products, copies, launches."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

from twinserve.real_backend.bench.results import DevicePeaks
from twinserve.run_core.clock import WallClock

_REPEATS = 5
_WARM_UP = 3
_LAUNCHES = 1000  # the device's queue holds about as many; beyond it the host would wait
_MATRIX = 8192
_COPY_BYTES = 1 << 30  # far more than any cache holds


@torch.inference_mode()
def measure_peaks(device: torch.device, dtype: torch.dtype) -> DevicePeaks:
    """Takes seconds and about 3 GiB of a CUDA device."""
    return DevicePeaks(
        matmul_tflops=2 * _MATRIX**3 / _matmul_seconds(device, dtype) / 1e12,
        copy_tbps=2 * _COPY_BYTES / _copy_seconds(device) / 1e12,
        launch_us=_launch_seconds(device) * 1e6,
        graph_node_us=_graph_node_seconds(device) * 1e6,
    )


def _matmul_seconds(device: torch.device, dtype: torch.dtype) -> float:
    operands = [torch.randn(2, _MATRIX, _MATRIX, device=device, dtype=dtype) for _ in range(2)]
    out = torch.empty(_MATRIX, _MATRIX, device=device, dtype=dtype)

    def products() -> None:
        for left, right in operands:
            torch.matmul(left, right, out=out)

    return _device_seconds(products, times=5) / len(operands)


def _copy_seconds(device: torch.device) -> float:
    source, target = (torch.zeros(_COPY_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
    return _device_seconds(lambda: target.copy_(source), times=5)


def _launch_seconds(device: torch.device) -> float:
    counter, clock = torch.zeros(1, device=device), WallClock()

    def launches() -> int:
        torch.cuda.synchronize(device)
        start = clock.now()
        for _ in range(_LAUNCHES):
            counter.add_(1)
        return clock.now() - start

    spans = [launches() for _ in range(_WARM_UP + _REPEATS)]
    torch.cuda.synchronize(device)
    return median(spans[_WARM_UP:]) / _LAUNCHES / 1e9


def _graph_node_seconds(device: torch.device) -> float:
    counter, graph = torch.zeros(1, device=device), torch.cuda.CUDAGraph()
    counter.add_(1)  # loads the kernel, which a capture cannot
    torch.cuda.synchronize(device)
    with torch.cuda.graph(graph):
        for _ in range(_LAUNCHES):
            counter.add_(1)
    return _device_seconds(graph.replay, times=3) / _LAUNCHES


def _device_seconds(work: Callable[[], object], *, times: int) -> float:
    """Median device time of one call, over repeats of ``times`` calls each."""
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def span() -> float:
        start.record()
        for _ in range(times):
            work()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3 / times

    spans = [span() for _ in range(_WARM_UP + _REPEATS)]
    return median(spans[_WARM_UP:])
