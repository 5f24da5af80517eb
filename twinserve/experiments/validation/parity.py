"""Parity: the simulator, given a real run's clock and sampled ids, must take the same decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.names import DECISIONS, STEPS
from twinserve.experiments.validation.decisions import (
    Difference,
    common,
    decision_columns,
    digest_of,
    encode,
    first_difference,
)
from twinserve.experiments.validation.recorded import RecordedRun
from twinserve.experiments.validation.simulation import simulate_again
from twinserve.experiments.workloads import Workload
from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.record import Columns
from twinserve.sched_core.plan import Ints
from twinserve.sim_backend.recorded_tokens import RecordedTokens
from twinserve.sim_backend.replay import ReplayCostModel

Intervals: TypeAlias = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Real and replayed decision log. ``difference`` is where they part, ``error`` why the replay stopped early."""

    num_plans: int
    sha256_real: str
    sha256_simulated: str
    difference: Difference | None
    error: str | None

    @property
    def equal(self) -> bool:
        return self.difference is None and self.error is None

    def describe(self) -> str:
        """One line for people."""
        if self.equal:
            return f"{self.num_plans} plans equal byte for byte (sha256 {self.sha256_real[:16]}...)"
        parts = [self.difference.describe()] if self.difference is not None else []
        return "; ".join([*parts, *([self.error] if self.error is not None else [])])


def replay(
    run: RecordedRun,
    *,
    intervals: Intervals | None = None,
    token_ids: Ints | None = None,
    workload: Workload | None = None,
    num_blocks: int | None = None,
) -> RunOutcome:
    """The unmodified simulator on the recorded intervals and sampled ids, unless others are given."""
    return simulate_again(
        run,
        _clock(run, recorded_intervals(run) if intervals is None else intervals),
        token_source=_tokens(run, token_ids),
        workload=workload,
        num_blocks=num_blocks,
        keep_plans=True,
    )


def recorded_intervals(run: RecordedRun) -> Intervals:
    """Start and end (ns) of every recorded step."""
    return list(zip(run.record.steps["start_ns"], run.record.steps["end_ns"], strict=True))


def check_parity(run: RecordedRun, log: Columns) -> Parity:
    """Replay ``run`` and compare with ``log``, the decisions it recorded."""
    replayed = replay(run)
    simulated = common(decision_columns(replayed.record.plans), log)
    return Parity(
        num_plans=len(log["step_id"]),
        sha256_real=digest_of(encode(log)),
        sha256_simulated=digest_of(encode(simulated)),
        difference=first_difference(log, simulated),
        error=None if replayed.error is None else str(replayed.error),
    )


def check_log(run: RecordedRun) -> Columns | None:
    """The run's decision log, None where it kept none.

    Raises:
        ConfigError: it is not the log of the recorded steps.
    """
    log = run.decisions
    if log is not None and list(log["step_id"]) != list(run.record.steps["step_id"]):
        raise ConfigError(f"has other steps than {STEPS}; run the experiment again", file=run.folder / DECISIONS)
    if log is not None and any(len(column) != len(log["step_id"]) for column in log.values()):
        raise ConfigError("has columns of other lengths; run the experiment again", file=run.folder / DECISIONS)
    return log


def _clock(run: RecordedRun, intervals: Intervals) -> ReplayCostModel:
    requests = run.record.requests
    wakes = [time for name in ("sent_ns", "finish_ns") for time in requests[name] if time is not None]
    return ReplayCostModel(intervals, wakes)


def _tokens(run: RecordedRun, token_ids: Sequence[int] | Ints | None) -> RecordedTokens | None:
    tokens = run.record.tokens
    if "token_id" not in tokens:
        return None
    return RecordedTokens(np.asarray(tokens["request_id"]), tokens["token_id"] if token_ids is None else token_ids)
