"""How long a step kept the device busy."""

from __future__ import annotations

from typing import Protocol

import torch


class DeviceTimer(Protocol):
    """``start`` and ``stop`` go around a step's launches; ``wait`` is the step's one wait for the device."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def has_stopped(self) -> bool:
        """True once ``stop`` has been reached; never waits."""

    def wait(self) -> int | None:
        """Blocks until ``stop`` has been reached; returns the span in ns, None where no device is timed."""


class CudaTimer:
    """A pair of CUDA events, reused for every step (one step is in flight).

    The first is external: recorded while a CUDA graph is captured, it becomes a part of the graph.
    """

    def __init__(self) -> None:
        self._start = torch.cuda.Event(enable_timing=True, external=True)
        self._stop = torch.cuda.Event(enable_timing=True)

    def start(self) -> None:
        self._start.record()

    def stop(self) -> None:
        self._stop.record()

    def has_stopped(self) -> bool:
        return self._stop.query()

    def wait(self) -> int | None:
        self._stop.synchronize()
        return int(self._start.elapsed_time(self._stop) * 1e6)


class NoTimer:
    """For the CPU, where launches have finished when they return."""

    def start(self) -> None:
        return

    def stop(self) -> None:
        return

    def has_stopped(self) -> bool:
        return True

    def wait(self) -> int | None:
        return None


def make_timer(device: torch.device) -> DeviceTimer:
    return CudaTimer() if device.type == "cuda" else NoTimer()
