"""The measurements behind ``twinserve bench-engine``: the device's peaks, and steps of a loaded engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from twinserve.real_backend.bench.peaks import DevicePeaks, measure_peaks
from twinserve.real_backend.bench.repeated_step import repeatable
from twinserve.real_backend.bench.step_trace import StepTrace, trace_steps
from twinserve.real_backend.device import find_device, free_device
from twinserve.real_backend.device_errors import clear_errors
from twinserve.real_backend.engine_config import EngineOptions, ModelSource
from twinserve.real_backend.engine_loader import LoadedEngine, find_model_config, load_engine
from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.launch.runner import ModelRunner
from twinserve.real_backend.loop.clock import WallClock
from twinserve.real_backend.model.model_config import ModelConfig
from twinserve.real_backend.profiling.shape import Row
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.dispatch import dispatch
from twinserve.sched_core.plan import StepPlan

_TRACED_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The device, its peaks (None on the CPU), and the shapes of the model, named as in its config.json."""

    device: str
    memory_gib: float | None
    torch: str
    cuda: str | None
    peaks: DevicePeaks | None
    model: Mapping[str, Any]


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


def probe(*, model: Mapping[str, Any], scheduler: Mapping[str, Any], options: Mapping[str, Any]) -> Probe:
    """Measures the device's peaks at the model's number type. The mappings are those of ``run_experiment``.

    Raises:
        EngineError: no such device or model, or too little memory.
    """
    found, source = find_device(EngineOptions(**options).device), ModelSource(**model)
    config = find_model_config(source, scheduler["max_model_len"])
    dtype = getattr(torch, config.dtype if source.dtype == "auto" else source.dtype)
    on_gpu = found.type == "cuda"
    with clear_errors("measuring its peaks"):
        peaks = measure_peaks(found, dtype) if on_gpu else None
    return Probe(
        device=torch.cuda.get_device_name(found) if on_gpu else "cpu",
        memory_gib=torch.cuda.get_device_properties(found).total_memory / (1 << 30) if on_gpu else None,
        torch=torch.__version__,
        cuda=torch.version.cuda if on_gpu else None,
        peaks=peaks,
        model=_shapes(config, dtype.itemsize),
    )


def measure_steps(
    *,
    model: Mapping[str, Any],
    scheduler: Mapping[str, Any],
    options: Mapping[str, Any],
    steps: Mapping[str, Sequence[tuple[int, int]]],
    repeats: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[list[StepTiming], dict[str, Any]]:
    """Loads an engine and times ``steps``, each a list of rows (num_computed, num_new), by name.

    Returns the timings and facts of the engine. A step that the engine cannot run has an ``error``. The mappings are
    those of ``run_experiment``.

    Raises:
        EngineError: the engine could not be built.
    """
    free_device()  # the probe may have left something
    try:
        return _measure_steps(model, scheduler, options, steps, repeats, on_progress)
    finally:
        free_device()


def _measure_steps(
    model: Mapping[str, Any],
    scheduler: Mapping[str, Any],
    options: Mapping[str, Any],
    steps: Mapping[str, Sequence[tuple[int, int]]],
    repeats: int,
    on_progress: Callable[[int, int], None] | None,
) -> tuple[list[StepTiming], dict[str, Any]]:
    settings = SchedulerConfig(num_blocks=1, **scheduler)
    wanted = EngineOptions(**{**options, "kv_cache_noise": True})
    loaded = load_engine(ModelSource(**model), settings, wanted)
    shapes = {name: [Row(*row) for row in rows] for name, rows in steps.items()}
    timings = []
    for name, rows in shapes.items():
        timings.append(measure_step(loaded, name, rows, repeats))
        if on_progress is not None:
            on_progress(len(timings), len(shapes))
    # Once all are timed: a tracer that has run may slow the launches after it.
    return [_traced(loaded, timing, shapes[timing.name]) for timing in timings], loaded.facts


def measure_step(loaded: LoadedEngine, name: str, rows: Sequence[Row], repeats: int) -> StepTiming:
    """Medians over ``repeats`` of one step, without a trace."""
    try:
        with repeatable(loaded, rows) as plan:
            return _time_step(loaded, name, plan, repeats)
    except EngineError as error:
        return StepTiming(name=name, error=error.message)


def _traced(loaded: LoadedEngine, timing: StepTiming, rows: Sequence[Row]) -> StepTiming:
    if timing.device_ms is None:
        return timing
    with repeatable(loaded, rows) as plan:
        return replace(timing, trace=trace_steps(partial(_run, loaded.runner, plan), _TRACED_STEPS))


def _run(runner: ModelRunner, plan: StepPlan) -> int | None:
    runner.launch(plan)
    return runner.collect().device_ns


def _time_step(loaded: LoadedEngine, name: str, plan: StepPlan, repeats: int) -> StepTiming:
    runner, clock = loaded.runner, WallClock()
    step = partial(_run, runner, plan)
    step()  # a second time after the one that started the rows: everything is compiled and warm
    begun, device_ns = [clock.now()], []
    for _ in range(repeats):
        device_ns.append(step())
        begun.append(clock.now())
    spans = [span for span in device_ns if span is not None]
    choice = dispatch(plan.num_tokens, plan.num_rows, runner.capture_sizes)
    return StepTiming(
        name=name,
        step_ms=median(after - before for before, after in pairwise(begun)) / 1e6,
        device_ms=median(spans) / 1e6 if spans else None,
        graph_mode=str(choice.mode),
        num_padded_tokens=choice.num_padded_tokens,
    )


def _shapes(config: ModelConfig, dtype_bytes: int) -> dict[str, Any]:
    return {
        "name": config.name,
        "num_hidden_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "tie_word_embeddings": config.tie_word_embeddings,
        "qk_norm": config.qk_norm,
        "dtype_bytes": dtype_bytes,
    }
