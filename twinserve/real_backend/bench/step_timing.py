"""Steps of a loaded engine, timed one by one and then traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

from twinserve.real_backend.bench.repeated_step import repeatable
from twinserve.real_backend.bench.results import StepTiming
from twinserve.real_backend.bench.step_trace import trace_steps
from twinserve.real_backend.device import free_device
from twinserve.real_backend.engine_config import EngineConfig
from twinserve.real_backend.engine_loader import LoadedEngine, load_engine
from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.launch.runner import ModelRunner
from twinserve.real_backend.profiling.shape import Row
from twinserve.run_core.clock import WallClock
from twinserve.sched_core.dispatch import dispatch
from twinserve.sched_core.plan import StepPlan

_TRACED_STEPS = 5


def measure_steps(
    wanted: EngineConfig,
    steps: Mapping[str, Sequence[tuple[int, int]]],
    *,
    repeats: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[list[StepTiming], dict[str, Any]]:
    """Loads an engine and times ``steps``, each a list of rows (num_computed, num_new), by name.

    Returns the timings and facts of the engine. A step that the engine cannot run has an ``error``.

    Raises:
        EngineError: the engine could not be built.
    """
    free_device()  # the probe may have left something
    try:
        return _measure_steps(load_engine(*wanted.with_kv_cache_noise()), steps, repeats, on_progress)
    finally:
        free_device()


def _measure_steps(
    loaded: LoadedEngine,
    steps: Mapping[str, Sequence[tuple[int, int]]],
    repeats: int,
    on_progress: Callable[[int, int], None] | None,
) -> tuple[list[StepTiming], dict[str, Any]]:
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
