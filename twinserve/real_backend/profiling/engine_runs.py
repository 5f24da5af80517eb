"""Short runs of the whole engine loop: their host gap holds scheduling, confirming and recording.

All requests are there from the start, at most ``max_concurrency`` of them running: as some end, others start beside
those that decode, and the engine is never idle, however fast the device is. Small batches prefill now and then, large
ones all the time: between them lies how a device under its power limit slows down with its load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from twinserve.real_backend.launch.runner import ModelRunner
from twinserve.real_backend.profiling.measurement import ProfileRow, profile_row
from twinserve.run_core.clock import WallClock
from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import Traffic
from twinserve.run_core.wall_clock_driver import run_in_real_time
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.features import StepFeatures
from twinserve.sched_core.policies.registry import Policies
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec

MAX_PROMPT_TOKENS = 400_000
"""Of all requests running at once, about: a run stays short also where requests could be very long."""
OUTPUT_LEN = (16, 256)
"""Tokens."""
REFILL_S = 5.0
"""Of the runs whose batch is refilled; the largest batch has twice as long, to reach a steady clock."""
MOST_TURNS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """At most ``max_concurrency`` requests at once, ``num_requests`` in all or as many as begin within ``seconds``."""

    max_concurrency: int
    num_requests: int
    seconds: float


def engine_runs(max_num_seqs: int, density: float = 1.0) -> list[EngineRun]:
    """Batches that start together and run out, then batches that are refilled; ``density`` scales how long."""
    closed = sorted({1, min(8, max_num_seqs), max_num_seqs})
    refilled = sorted({min(count, max_num_seqs) for count in (2, 4, 8)} | {max(max_num_seqs // 4, 1)})
    seconds = density * REFILL_S
    return [
        *(EngineRun(max_concurrency=count, num_requests=count, seconds=seconds) for count in closed),
        *(EngineRun(max_concurrency=count, num_requests=MOST_TURNS * count, seconds=seconds) for count in refilled),
        EngineRun(max_concurrency=max_num_seqs, num_requests=MOST_TURNS * max_num_seqs, seconds=2 * seconds),
    ]


class TimedTraffic(Traffic):
    """Sends nothing more once ``until_ns`` have passed, but for the first batch."""

    def __init__(self, requests: Sequence[RequestSpec], *, max_concurrency: int, until_ns: int) -> None:
        super().__init__(requests, max_concurrency=max_concurrency)
        self._until_ns = until_ns
        self._has_begun = False

    def due(self, now: int) -> list[RequestSpec]:
        if self._has_begun and now >= self._until_ns:
            self.stop_sending()
        self._has_begun = True
        return super().due(now)


class EngineRuns:
    """Runs them on a runner that is ready; ``make_policies`` gives fresh policies, which may hold state."""

    def __init__(
        self,
        runner: ModelRunner,
        scheduler: SchedulerConfig,
        make_policies: Callable[[], Policies],
        *,
        seed: int,
        density: float = 1.0,
    ) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._make_policies = make_policies
        self._seed = seed
        self.runs = engine_runs(scheduler.max_num_seqs, density)

    def measure(self, number: int, shape_id: int) -> list[ProfileRow]:
        """Every step of run ``number``. Raises EngineError when the device is out of memory or fails."""
        run = self.runs[number]
        requests, output_lens = self._requests(run, number)
        until_ns = round(run.seconds * 1e9)
        traffic = TimedTraffic(requests, max_concurrency=run.max_concurrency, until_ns=until_ns)
        outcome = self._drive(traffic, output_lens)
        if outcome.error is not None:
            self._runner.release([spec.request_id for spec in requests])
            raise outcome.error
        return list(_rows(outcome, shape_id))

    def _drive(self, traffic: Traffic, output_lens: dict[int, int]) -> RunOutcome:
        engine, sizes = EngineCore(self._scheduler, self._make_policies()), self._runner.capture_sizes
        session = Session(engine, traffic, capture_sizes=sizes, output_lens=output_lens)
        return run_in_real_time(session, self._runner, WallClock())

    def _requests(self, run: EngineRun, number: int) -> tuple[Sequence[RequestSpec], dict[int, int]]:
        """Prompts of a 16th to the whole of half of ``max_model_len``, or of less where they would be too much work; no
        two runs or requests share a prefix.
        """
        rng = np.random.default_rng((self._seed, number))
        longest = max(min(self._scheduler.max_model_len // 2, 2 * MAX_PROMPT_TOKENS // run.max_concurrency), 1)
        prompts = rng.integers(max(longest // 16, 1), longest + 1, run.num_requests).tolist()
        outputs = rng.integers(OUTPUT_LEN[0], OUTPUT_LEN[1] + 1, run.num_requests).tolist()
        specs = [
            RequestSpec(request_id=index, prompt=Prompt.of_stream(number << 32 | index, length), max_tokens=output)
            for index, (length, output) in enumerate(zip(prompts, outputs, strict=True))
        ]
        return specs, dict(enumerate(outputs))


def _rows(outcome: RunOutcome, shape_id: int) -> Iterator[ProfileRow]:
    steps = outcome.record.steps
    features = [StepFeatures(*values) for values in zip(*(steps[name] for name in StepFeatures._fields), strict=True)]
    times = zip(steps["start_ns"], steps["end_ns"], steps["device_ns"], strict=True)
    for repeat, (feature, (start, end, device_ns)) in enumerate(zip(features, times, strict=True)):
        yield profile_row("engine", shape_id, repeat, "engine", feature, (end - start, device_ns))
