"""What a step's kernels cost by part, from a trace of the real step, replayed graphs included."""

from __future__ import annotations

from collections.abc import Callable

import torch

from twinserve.real_backend.bench.kernel_parts import parts_of
from twinserve.real_backend.bench.results import PARTS, KernelTime, Part, StepTrace


def trace_steps(step: Callable[[], object], repeats: int) -> StepTrace | None:
    """The mean step of ``repeats``; None where kernels cannot be traced (no CUDA device, no access to its counters)."""
    if not torch.cuda.is_available():
        return None
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities):  # starting the tracer takes long, so not within the trace
        step()
        torch.cuda.synchronize()
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(repeats):
            step()
        torch.cuda.synchronize()
    spans = [
        (event.time_range.start, event.name, event.time_range.elapsed_us())
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ]
    return summarise(sorted(spans), repeats) if spans else None


def summarise(spans: list[tuple[float, str, float]], repeats: int) -> StepTrace:
    """(start, name, us) of every launch in ``repeats`` steps, by start, as the mean step."""
    parts = parts_of([name for _, name, _ in spans])
    totals: dict[tuple[Part, str], tuple[int, float]] = {}
    for part, (_, name, took_us) in zip(parts, spans, strict=True):
        launches, total = totals.get((part, name), (0, 0.0))
        totals[part, name] = (launches + 1, total + took_us)
    kernels = [
        KernelTime(name=name, part=part, launches=launches / repeats, ms=total / 1e3 / repeats)
        for (part, name), (launches, total) in totals.items()
    ]
    return StepTrace(
        part_ms={part: sum(kernel.ms for kernel in kernels if kernel.part == part) for part in PARTS},
        kernels=tuple(sorted(kernels, key=lambda kernel: (-kernel.ms, kernel.name))),
    )
