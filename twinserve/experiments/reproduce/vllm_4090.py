"""Simulates vLLM's 300 measured requests on an RTX 4090 from kernel times.

Kernel times give what a step takes on the device. Only the host gap is fitted to the run: one number, to the first
hundred requests. The other two hundred are compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from twinserve.experiments.backends.simulated import build_simulation
from twinserve.experiments.calibrate.outcome import calibrate
from twinserve.experiments.config.calibration import read_calibration
from twinserve.experiments.config.load import Experiment, load_experiment
from twinserve.experiments.files.progress import LateProgress
from twinserve.experiments.reproduce.comparison import Comparison
from twinserve.experiments.reproduce.vllm_data import KERNELS, RequestTimes, read_num_blocks, requests_file
from twinserve.experiments.run import build_requests
from twinserve.experiments.settings.overrides import Override
from twinserve.experiments.settings.paths import packaged_configs
from twinserve.experiments.workloads import Workload
from twinserve.run_core.session import Session
from twinserve.sched_core.engine import EngineCore
from twinserve.sim_backend.calibration.calibrated import CalibratedCostModel
from twinserve.sim_backend.calibration.values import Calibration, HostGap
from twinserve.sim_backend.driver import simulate
from twinserve.sim_backend.fitting.terms import rounded

CALIBRATION = "llmservingsim-rtx-4090-llama-3.1-8b"
FITTED, COMPARED = slice(0, 100), slice(100, None)
MOST_GAP_MS = 3.0
GAP_TOLERANCE_MS = 0.02
MAX_EVALUATIONS = 30
BOUNDED = ("mean_ttft_ms", "p99_ttft_ms", "p99_tpot_ms")
MAX_ERROR = 0.03
PERCENTILES = {"ttft": (50, 90, 99), "tpot": (50, 99), "e2el": (50, 99)}

ORIGIN = (
    "{kernels} The host gap is fitted by `twinserve reproduce vllm-4090` to the first 100 of 300 requests that "
    "LLMServingSim measured with vLLM 0.19.0 (asynchronous scheduling): {gap} us."
)


@dataclass(frozen=True, slots=True)
class MeasuredWorkload:
    """The requests as vLLM queued them, ready to be simulated with any step times."""

    experiment: Experiment
    workload: Workload

    @classmethod
    def load(cls, data: Path) -> MeasuredWorkload:
        path = Override(key="workload.path", value=str(requests_file(data).absolute()), source="--data")
        experiment = load_experiment("traces/vllm_rtx_4090", (path,))
        return cls(experiment, build_requests(experiment))

    def times(self, calibration: Calibration) -> RequestTimes:
        """Simulated times in the order of the measured file."""
        parts = build_simulation(self.experiment)
        scheduler = replace(parts.scheduler, num_blocks=calibration.num_blocks)
        session = Session(
            EngineCore(scheduler, parts.policies),
            self.workload.traffic(),
            capture_sizes=calibration.capture_sizes,
            output_lens=self.workload.output_lens,
        )
        record = simulate(session, CalibratedCostModel(calibration)).complete()
        order = np.argsort(record.requests["request_id"])
        names = ("arrival_ns", "first_token_ns", "last_token_ns")
        columns = [np.asarray(record.requests[name], dtype=np.float64)[order] / 1e9 for name in names]
        num_tokens = np.asarray(record.requests["output_len"], dtype=np.float64)[order]
        return RequestTimes(queued=columns[0], first=columns[1], last=columns[2], num_tokens=num_tokens)


def shipped_calibration() -> Calibration:
    return read_calibration(packaged_configs() / "calibrations" / f"{CALIBRATION}.yaml")


def fit_vllm(data: Path, workload: MeasuredWorkload, measured: RequestTimes, bar: LateProgress) -> Calibration:
    """The calibration of the measured engine: kernel times, and the host gap that fits its first hundred requests.

    Raises:
        ConfigError: a file below ``data`` is missing or wrong.
    """
    from scipy.optimize import minimize_scalar

    kernels = calibrate([data / KERNELS], num_blocks=read_num_blocks(data)).calibration
    losses: dict[float, float] = {}

    def loss(gap_ms: float) -> float:
        bar.update(len(losses), MAX_EVALUATIONS)
        simulated = workload.times(replace(kernels, host_gap=HostGap(base_ms=gap_ms)))
        losses[gap_ms] = _squared_error(measured.of(FITTED), simulated.of(FITTED))
        return losses[gap_ms]

    loss(0.0)  # the search below looks between its bounds, not at them
    options = {"xatol": GAP_TOLERANCE_MS, "maxiter": MAX_EVALUATIONS - 1}
    minimize_scalar(loss, bounds=(0.0, MOST_GAP_MS), method="bounded", options=options)
    gap_ms = rounded(min(losses, key=lambda gap: (losses[gap], gap)))
    origin = ORIGIN.format(kernels=kernels.origin, gap=f"{gap_ms * 1e3:.0f}")
    return replace(kernels, host_gap=HostGap(base_ms=gap_ms), origin=origin)


def compare_times(measured: RequestTimes, simulated: RequestTimes) -> Comparison:
    """The figures of the two hundred requests that nothing was fitted to."""
    return Comparison(
        run="vLLM 0.19.0 on an RTX 4090",
        published=_figures(measured.of(COMPARED)),
        simulated=_figures(simulated.of(COMPARED)),
    )


def is_within_bounds(comparison: Comparison) -> bool:
    """Whether mean TTFT, TTFT p99 and TPOT p99 are all within 3 %."""
    return all(abs(comparison.simulated[name] / comparison.published[name] - 1) <= MAX_ERROR for name in BOUNDED)


def _squared_error(measured: RequestTimes, simulated: RequestTimes) -> float:
    """Mean squared error (s^2) of when first and last tokens come: gaps add up over steps, and so do these errors."""
    start = measured.queued[0]
    pairs = ((measured.first, simulated.first), (measured.last, simulated.last))
    return float(np.mean([np.mean((there - (here - start)) ** 2) for here, there in pairs]))


def _figures(times: RequestTimes) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name, values in times.latencies.items():
        figures[f"mean_{name}_ms"] = float(values.mean())
        figures |= {f"p{p}_{name}_ms": float(np.percentile(values, p)) for p in PERCENTILES[name]}
    return figures
