"""What ``experiments`` calls: a run or a profile of the real engine, and measurements of the engine by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twinserve.real_backend.bench.probe import probe
from twinserve.real_backend.bench.step_timing import measure_steps
from twinserve.real_backend.device import free_device
from twinserve.real_backend.engine_config import EngineConfig
from twinserve.real_backend.engine_loader import LoadedEngine, load_engine
from twinserve.real_backend.loop.clock import WallClock
from twinserve.real_backend.loop.driver import RunOutcome, run_real
from twinserve.real_backend.profiling.profile import Profile
from twinserve.run_core.model_config import ModelConfig
from twinserve.run_core.record import Recorder, RunRecord
from twinserve.run_core.traffic import Traffic
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.policies.registry import Policies

__all__ = ["RealRun", "load_profile", "measure_steps", "probe", "run_engine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRun:
    """A real run's record, KV blocks, model, facts for its manifest, and why it ended early (None: it did not)."""

    record: RunRecord
    num_blocks: int
    model: ModelConfig
    manifest: Mapping[str, Any]
    error: str | None = None


def run_engine(
    wanted: EngineConfig,
    *,
    policies: Policies,
    traffic: Traffic,
    recorder: Recorder,
    output_lens: Mapping[int, int] | None = None,
    check: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> RealRun:
    """Load the model, run the traffic on the wall clock, and free the device.

    A step that fails ends the run: ``error`` is set and the record holds what had finished.

    Raises:
        EngineError: the engine could not be built.
    """

    def drive(loaded: LoadedEngine) -> RunOutcome:
        return run_real(
            EngineCore(loaded.scheduler, policies),
            loaded.runner,
            traffic,
            recorder,
            WallClock(),
            capture_sizes=loaded.runner.capture_sizes,
            output_lens=output_lens,
            check=check,
            on_progress=on_progress,
        )

    free_device()  # an engine that failed to load may have left something
    try:
        return _run(wanted, drive)
    finally:
        free_device()


def load_profile(
    wanted: EngineConfig,
    *,
    make_policies: Callable[[], Policies],
    seed: int,
    num_visits: int,
    density: float,
) -> Profile:
    """An engine whose KV cache holds noise, ready to be profiled.

    Raises:
        EngineError: the engine could not be built.
    """
    loaded = load_engine(*wanted.with_kv_cache_noise())
    return Profile(loaded, make_policies, seed=seed, num_visits=num_visits, density=density)


def _run(wanted: EngineConfig, drive: Callable[[LoadedEngine], RunOutcome]) -> RealRun:
    loaded = load_engine(*wanted)
    outcome = drive(loaded)
    return RealRun(
        record=outcome.record,
        num_blocks=loaded.pool.num_blocks,
        model=loaded.model_config,
        manifest=loaded.facts,
        error=None if outcome.error is None else str(outcome.error),
    )
