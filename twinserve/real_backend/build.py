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
from twinserve.real_backend.profiling.profile import Profile
from twinserve.run_core.clock import WallClock
from twinserve.run_core.model_config import ModelConfig
from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.record import Recorder
from twinserve.run_core.session import ProgressListener, Session
from twinserve.run_core.source import RequestSource
from twinserve.run_core.wall_clock_driver import run_in_real_time
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.policies.registry import Policies

__all__ = ["RealRun", "load_profile", "measure_steps", "probe", "run_engine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRun:
    """How a real run went, the KV blocks and the model it had, and facts for its manifest."""

    outcome: RunOutcome
    num_blocks: int
    model: ModelConfig
    manifest: Mapping[str, Any]


def run_engine(
    wanted: EngineConfig,
    *,
    policies: Policies,
    source: RequestSource,
    recorder: Recorder,
    output_lens: Mapping[int, int] | None = None,
    check: bool = False,
    on_progress: ProgressListener | None = None,
) -> RealRun:
    """Load the model, serve the requests of ``source`` in real time, and free the device.

    A step that fails ends the run: ``error`` is set and the record holds what had finished.

    Raises:
        EngineError: the engine could not be built.
    """

    def drive(loaded: LoadedEngine) -> RunOutcome:
        session = Session(
            EngineCore(loaded.scheduler, policies),
            source,
            recorder,
            capture_sizes=loaded.runner.capture_sizes,
            output_lens=output_lens,
            check=check,
            on_progress=on_progress,
        )
        return run_in_real_time(session, loaded.runner, WallClock())

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
    return RealRun(
        outcome=drive(loaded),
        num_blocks=loaded.pool.num_blocks,
        model=loaded.model_config,
        manifest=loaded.facts,
    )
