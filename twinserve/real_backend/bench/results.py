"""What the engine's benchmarks measure, as values; no torch, so that reports can be made of them anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from twinserve.run_core.model_config import ModelConfig

Part: TypeAlias = Literal["gemm", "attention", "pointwise", "head", "sampling", "other"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Of a step: its kernels by what they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePeaks:
    """Measured peaks.

    ``matmul_tflops``: a square matrix product of 8,192, random operands. ``copy_tbps``: a copy of 1 GiB, bytes read and
    written. ``launch_us``: host time of one eager launch of the smallest kernel from Python. ``graph_node_us``: device
    time of that kernel inside a CUDA graph.
    """

    matmul_tflops: float
    copy_tbps: float
    launch_us: float
    graph_node_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The device, its memory and peaks (None on the CPU), the libraries' versions, and the model in its type."""

    device: str
    memory_gib: float | None
    torch: str
    cuda: str | None
    peaks: DevicePeaks | None
    model: ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """All launches of one kernel in a step: their part, number and time (ms) in all."""

    name: str
    part: Part
    launches: float
    ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """Device time of a step by part (ms), and the kernels it is made of, longest first."""

    part_ms: dict[str, float]
    kernels: tuple[KernelTime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTiming:
    """One step, repeated: medians in ms, and what its kernels cost.

    ``step_ms`` is the time from one step's begin to the next one's, ``device_ms`` the part in which the device works
    on it (None on the CPU, like ``trace``). ``error`` says why the step could not be run.
    """

    name: str
    step_ms: float | None = None
    device_ms: float | None = None
    graph_mode: str | None = None
    num_padded_tokens: int | None = None
    trace: StepTrace | None = None
    error: str | None = None
