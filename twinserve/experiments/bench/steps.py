"""Measures single steps of the engine: their time, and its breakdown by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from twinserve.experiments.backends.backend_run import Progress
from twinserve.experiments.backends.real import time_engine_steps
from twinserve.experiments.bench.bench_report import BenchRow, Figures, StepParts
from twinserve.experiments.bench.cases import StepCase
from twinserve.experiments.bench.device import Device
from twinserve.experiments.bench.device_limits import step_floors, whole_step_floor
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import DeviceError
from twinserve.real_backend.bench.results import StepTiming

_UNIT = "device / whole step, ms"


def time_steps(
    experiment: Experiment, steps: Mapping[str, StepCase], repeats: int, on_progress: Progress
) -> tuple[dict[str, StepTiming], dict[str, Any]]:
    """Timings of ``steps`` by name, and facts of the engine that ran them.

    An engine that does not fit the device is the ``error`` of every step.

    Raises:
        ConfigError: a setting is wrong.
    """
    rows = {name: case.rows for name, case in steps.items()}
    if not rows:
        return {}, {}
    try:
        with experiment.errors_name_source():
            timings, facts = time_engine_steps(experiment, rows, repeats, on_progress)
    except DeviceError as error:
        return {name: StepTiming(name=name, error=error.message) for name in rows}, {}
    return {timing.name: timing for timing in timings}, facts


def step_row(case: StepCase, timing: StepTiming, device: Device) -> BenchRow:
    """The row of one step; its limit is the floor of matrix products, attention and head."""
    title = f"step of {case.title}, graphs"
    if timing.error is not None:
        return BenchRow(name=case.name, title=title, unit=_UNIT, reason=timing.error)
    limit: Figures = {}
    if device.hardware is not None:
        floor = whole_step_floor(step_floors(device.hardware, device.model, case.rows))
        limit = {"device_ms": floor, "step_ms": floor}
    figures = {"device_ms": timing.device_ms, "step_ms": timing.step_ms}
    eager = timing.graph_mode == "eager" and timing.device_ms is not None
    note = "no graph of this size: eager" if eager else None
    return BenchRow(name=case.name, title=title, unit=_UNIT, figures=figures, limit=limit, note=note)


def step_parts(case: StepCase, timing: StepTiming, device: Device) -> StepParts:
    """One step of the breakdown."""
    if timing.error is not None:
        return StepParts(name=case.name, title=case.title, reason=timing.error)
    trace = timing.trace
    return StepParts(
        name=case.name,
        title=case.title,
        graph_mode=timing.graph_mode,
        num_padded_tokens=timing.num_padded_tokens,
        step_ms=timing.step_ms,
        device_ms=timing.device_ms,
        parts=None if trace is None else trace.part_ms,
        floors=step_floors(device.hardware, device.model, case.rows) if device.hardware else None,
        kernels=() if trace is None else tuple(asdict(kernel) for kernel in trace.kernels),
    )
