"""Fits step times of the note's two engines to their published runs at 2 requests/s.

A step takes ``max(floor, per_token * tokens + traffic * decode context)``. Eager launches of 36 layers set the floor;
above it the matrix products grow with the tokens. Two numbers are fitted per engine; the traffic of cached keys and
values comes from the model's shape and the GPU's datasheet. The runs at infinite rate are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twinserve.experiments.backends.simulated import Simulation, build_simulation
from twinserve.experiments.config.catalog import load_hardware, load_model
from twinserve.experiments.config.load import load_experiment
from twinserve.experiments.reproduce.comparison import Comparison, compare
from twinserve.experiments.reproduce.lattice import Minimum, find_minimum
from twinserve.experiments.reproduce.published import NOTE
from twinserve.experiments.run import build_requests
from twinserve.experiments.settings.overrides import Override
from twinserve.experiments.workloads import Workload
from twinserve.run_core.record import RunRecord
from twinserve.run_core.session import Session
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.engine import EngineCore
from twinserve.sim_backend.calibration.calibrated import CalibratedCostModel
from twinserve.sim_backend.calibration.values import Calibration, StepTerms
from twinserve.sim_backend.cost_model import CostModel
from twinserve.sim_backend.driver import simulate

ENGINES = ("nano", "v1")
# (floor ms, ms per token), the same for both engines. A start must leave some steps above its floor: where every step
# takes the floor, the loss says nothing about the slope.
STARTS = ((25.0, 0.15), (40.0, 0.1), (50.0, 0.2))
MAX_DISAGREEMENT = 0.02

COVERED = ("num_tokens", "num_rows", "decode_context")
KNOT_TOKENS = 512  # the dense part is a straight line through zero; any second knot would do

ORIGIN = (
    "Fitted to the published duration and nine percentiles of {engine} at 2 requests/s (Inside nano-vLLM v1; "
    "junuxyz/nano-vllm-bench) by `twinserve calibrate-note`: floor_ms and the slope of dense_knots_ms. "
    "per_context_token_us is KV bytes per token over the datasheet's bandwidth. The number of blocks is not "
    "published; it is a stated input. Mean absolute log error of the fitted run {fitted:.1%}, of the run at "
    "infinite rate, which was held out, {held_out:.1%}."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One search: ``values`` of its minimum are (floor ms, ms per token)."""

    engine: str
    start: tuple[float, float]
    minimum: Minimum


@dataclass(frozen=True, slots=True)
class NoteRun:
    """One of the note's runs, ready to be simulated with any step times."""

    name: str
    workload: Workload

    @classmethod
    def load(cls, name: str) -> NoteRun:
        return cls(name, build_requests(load_experiment(f"note_4090/{name}")))

    def record(self, cost_model: CostModel) -> RunRecord:
        parts = self.parts()
        engine = EngineCore(parts.scheduler, parts.policies)
        return simulate(Session(engine, self.workload.traffic()), cost_model).complete()

    def compare(self, cost_model: CostModel) -> Comparison:
        return compare(self.name, NOTE[self.name], self.record(cost_model))

    def parts(self) -> Simulation:
        """Fresh policies; the configured step times, which need not exist yet, are left out."""
        placeholder = Override(key="sim.cost_model", value={"kind": "linear", "base_ms": 1.0}, source="calibrate-note")
        return build_simulation(load_experiment(f"note_4090/{self.name}", (placeholder,)))


def fit(task: tuple[str, tuple[float, float]]) -> Fit:
    """Search from one start: ``task`` is (engine, start)."""
    engine, start = task
    run = NoteRun.load(f"{engine}_rate2")
    blank = _blank(run)

    def loss(values: tuple[float, ...]) -> float:
        return run.compare(CalibratedCostModel(_with_terms(blank, *values))).mean_abs_log_error

    return Fit(engine=engine, start=start, minimum=find_minimum(loss, start))


def disagreement(fits: Iterable[Fit]) -> float:
    """The largest relative difference between fits of one engine, over its parameters, as a fraction."""
    parameters: list[tuple[float, ...]] = list(zip(*(each.minimum.values for each in fits), strict=True))
    return max(max(values) / min(values) - 1 for values in parameters)


def calibration_of(fits: Sequence[Fit]) -> Calibration:
    """The best of an engine's fits as a calibration, with its ranges and errors."""
    best = min(fits, key=lambda each: (each.minimum.loss, each.minimum.values))
    fitted, held_out = (NoteRun.load(f"{best.engine}_{rate}") for rate in ("rate2", "inf"))
    calibration = _with_terms(_blank(fitted), *best.minimum.values)
    records = [run.record(CalibratedCostModel(calibration)) for run in (fitted, held_out)]
    errors = [
        compare(run.name, NOTE[run.name], record).mean_abs_log_error
        for run, record in zip((fitted, held_out), records, strict=True)
    ]
    origin = ORIGIN.format(engine=best.engine, fitted=errors[0], held_out=errors[1])
    return replace(calibration, covered=_covered(records), origin=origin)


def _blank(run: NoteRun) -> Calibration:
    """The facts of an engine that are not fitted."""
    scheduler = run.parts().scheduler
    model, hardware = load_model("Qwen/Qwen3-8B", "bfloat16", Path()), load_hardware("rtx-4090", Path())
    terms = StepTerms(
        dense_knots_ms=((0.0, 0.0),),
        per_context_token_us=round(model.kv_bytes_per_token / hardware.ideal().bytes_per_ns / 1e3, 4),
    )
    return Calibration(
        gpu=hardware.name,
        model=model.name,
        dtype="bfloat16",
        attention_backend="flash-attn",
        num_blocks=scheduler.num_blocks,
        block_size=scheduler.block_size,
        origin="",
        modes={GraphMode.EAGER: terms},
        covered={},
    )


def _with_terms(calibration: Calibration, floor_ms: float, per_token_ms: float) -> Calibration:
    knots = ((0.0, 0.0), (float(KNOT_TOKENS), round(KNOT_TOKENS * per_token_ms, 4)))
    terms = replace(calibration.modes[GraphMode.EAGER], dense_knots_ms=knots, floor_ms=floor_ms)
    return replace(calibration, modes={GraphMode.EAGER: terms})


def _covered(records: Iterable[RunRecord]) -> dict[str, tuple[int, int]]:
    """The ranges of both runs: on one the numbers were fitted, on the other they were checked."""
    steps = [record.steps for record in records]
    return {name: (min(min(s[name]) for s in steps), max(max(s[name]) for s in steps)) for name in COVERED}
