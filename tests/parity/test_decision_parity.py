"""The simulator, given a real run's clock and sampled ids, must decide exactly what the real run decided.

The run has preemptions, prefix hits, client aborts, conversations and a concurrency cap. The negative controls show
that the comparison can fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.real_backend.tiny_qwen3 import Reference, save_checkpoint
from twinserve.real_backend.engine_config import EngineOptions, ModelSource
from twinserve.real_backend.engine_loader import load_engine
from twinserve.run_core.clock import ManualClock
from twinserve.run_core.record import Recorder, RunRecord
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import FollowUp, Traffic
from twinserve.run_core.wall_clock_driver import run_in_real_time
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.plan import Ints
from twinserve.sched_core.policies.registry import build_policies
from twinserve.sched_core.requests.prompt import Prompt, Segment
from twinserve.sched_core.requests.spec import RequestSpec, SamplingParams
from twinserve.sim_backend.driver import simulate
from twinserve.sim_backend.recorded_tokens import RecordedTokens
from twinserve.sim_backend.replay import ReplayCostModel, ReplayError

MILLISECOND = 1_000_000
CONFIG = SchedulerConfig(
    num_blocks=20,
    block_size=8,
    max_num_batched_tokens=48,
    max_num_seqs=6,
    max_model_len=256,
    scheduler_reserve_full_isl=False,
)
NUM_REQUESTS = 30
REPEATED, REPEATED_PROMPT = NUM_REQUESTS, tuple(range(5, 19))


Intervals = list[tuple[int, int]]
Replay = Callable[..., RunRecord]
STEP_NS, OVERSLEEP_NS = 2 * MILLISECOND + 1009, 61_007


def make_traffic(answer: list[int]) -> Traffic:
    """Half of the prompts share a prefix; every third request is the next turn of an earlier one's conversation.

    The last two requests have explicit ids: the second repeats the first one's prompt and ``answer``.
    """
    specs = [make_request(request_id) for request_id in range(NUM_REQUESTS)]
    turns = range(2, NUM_REQUESTS, 3)
    for request_id in turns:
        specs[request_id] = next_turn(specs[request_id - 2], specs[request_id])
    follow_ups = {request_id: FollowUp(after=request_id - 2, delay_ns=3 * MILLISECOND) for request_id in turns}
    specs += repeated_pair(answer)
    follow_ups[REPEATED + 1] = FollowUp(after=REPEATED)
    return Traffic(
        specs,
        max_concurrency=8,
        follow_ups=follow_ups,
        abort_after_ns=dict.fromkeys(range(4, NUM_REQUESTS, 7), 25 * MILLISECOND),
    )


def make_request(request_id: int) -> RequestSpec:
    rng = np.random.default_rng(request_id)
    shared = Segment(1000 + request_id % 2, 0, 24) if request_id % 2 else Segment(2000 + request_id, 0, 10)
    return RequestSpec(
        request_id=request_id,
        prompt=Prompt([shared, Segment(request_id, 0, int(rng.integers(3, 30)))]),
        max_tokens=int(rng.integers(8, 28)),
        arrival_ns=int(request_id * 4.1 * MILLISECOND),
        output_stream=3000 + request_id,
        sampling=SamplingParams(temperature=1.0, ignore_eos=True),
    )


def repeated_pair(answer: list[int]) -> list[RequestSpec]:
    sampling = SamplingParams(temperature=0.0, ignore_eos=True)
    first = RequestSpec(
        request_id=REPEATED,
        prompt=Prompt.of_token_ids(REPEATED_PROMPT),
        max_tokens=len(answer),
        arrival_ns=450 * MILLISECOND,
        sampling=sampling,
    )
    return [first, replace(first, request_id=REPEATED + 1, prompt=Prompt.of_token_ids([*REPEATED_PROMPT, *answer, 1]))]


def next_turn(previous: RequestSpec, turn: RequestSpec) -> RequestSpec:
    answer = Segment(3000 + previous.request_id, 0, previous.max_tokens)
    return replace(turn, prompt=Prompt([*previous.prompt.pieces, answer, turn.prompt.pieces[-1]]))


def scripted_lengths() -> dict[int, int]:
    return {request_id: 3 + request_id % 7 for request_id in range(4, NUM_REQUESTS, 4)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def answer(folder: Path) -> list[int]:
    return Reference(folder).greedy(REPEATED_PROMPT, 20)


@pytest.fixture(scope="module")
def real_run(folder: Path, answer: list[int]) -> RunRecord:
    options = EngineOptions(device="cpu", num_gpu_blocks_override=CONFIG.num_blocks)
    loaded = load_engine(ModelSource(path=str(folder)), CONFIG, options)
    session = make_session(answer, CONFIG, check=True)
    clock = ManualClock(tick_ns=STEP_NS, oversleep_ns=OVERSLEEP_NS)
    return run_in_real_time(session, loaded.runner, clock).complete()


def make_session(answer: list[int], config: SchedulerConfig, **options: Any) -> Session:
    engine, recorder = EngineCore(config, build_policies()), Recorder(keep_plans=True)
    return Session(engine, make_traffic(answer), recorder, output_lens=scripted_lengths(), **options)


@pytest.fixture
def replay(real_run: RunRecord, answer: list[int]) -> Replay:
    """The recorded workload through the simulator, on its intervals and sampled ids unless others are given."""

    def run(
        *, config: SchedulerConfig = CONFIG, intervals: Intervals | None = None, token_ids: Ints | None = None
    ) -> RunRecord:
        tokens = real_run.tokens
        return simulate(
            make_session(answer, config),
            ReplayCostModel(intervals or recorded_intervals(real_run)),
            token_source=RecordedTokens(tokens["request_id"], tokens["token_id"] if token_ids is None else token_ids),
        ).complete()

    return run


def recorded_intervals(record: RunRecord) -> Intervals:
    return list(zip(record.steps["start_ns"], record.steps["end_ns"], strict=True))


def decisions(record: RunRecord) -> list[bytes]:
    return [plan.to_bytes() for plan in record.plans]


def test_the_run_has_everything_that_could_break_parity(real_run: RunRecord) -> None:
    assert real_run.stats["num_preemptions"] > 3
    assert real_run.stats["prefix_cache_hits"] > 100
    assert real_run.requests["finish_reason"].count("abort") > 2
    assert real_run.requests["finish_reason"].count("stop") > 3
    assert len(real_run.requests["request_id"]) == NUM_REQUESTS + 2
    sent, arrival = np.array(real_run.requests["sent_ns"]), np.array(real_run.requests["arrival_ns"])
    assert (sent - arrival > 3 * MILLISECOND).any(), "the concurrency cap held nobody back"


def test_replaying_a_real_run_gives_its_decisions_byte_for_byte(real_run: RunRecord, replay: Replay) -> None:
    replayed = replay()
    assert decisions(replayed) == decisions(real_run)
    assert replayed.steps["start_ns"] == real_run.steps["start_ns"]
    assert replayed.requests == real_run.requests


def test_one_interval_a_millisecond_longer_across_an_arrival_changes_decisions(
    real_run: RunRecord, replay: Replay
) -> None:
    intervals = recorded_intervals(real_run)
    step = step_before_an_arrival(real_run)
    start, end = intervals[step]
    later = [(begin + MILLISECOND, finish + MILLISECOND) for begin, finish in intervals[step + 1 :]]
    longer = [*intervals[:step], (start, end + MILLISECOND), *later]
    assert differs(real_run, lambda: replay(intervals=longer))


def step_before_an_arrival(record: RunRecord) -> int:
    """A step that ends less than 1 ms before a request arrives that is then scheduled at the next boundary."""
    columns = (record.requests[name] for name in ("arrival_ns", "sent_ns", "first_scheduled_ns"))
    prompt = {arrival for arrival, sent, scheduled in zip(*columns, strict=True) if sent == scheduled}
    ends = record.steps["end_ns"]
    return next(step for step, end in enumerate(ends) if any(0 < arrival - end <= MILLISECOND for arrival in prompt))


def test_one_block_fewer_changes_decisions(real_run: RunRecord, replay: Replay) -> None:
    fewer = replace(CONFIG, num_blocks=CONFIG.num_blocks - 1)
    assert differs(real_run, lambda: replay(config=fewer))


def test_one_sampled_id_changed_in_a_cached_prefix_changes_decisions(real_run: RunRecord, replay: Replay) -> None:
    """A later prompt repeats the changed answer word for word, so it finds less of it cached."""
    owners = np.asarray(real_run.tokens["request_id"])
    changed = np.asarray(real_run.tokens["token_id"]).copy()
    changed[(owners == REPEATED).nonzero()[0][0]] ^= 1
    assert differs(real_run, lambda: replay(token_ids=changed))


def differs(real_run: RunRecord, run: Callable[[], RunRecord]) -> bool:
    """Other decisions, or a simulation that no longer fits the recording at all."""
    try:
        return decisions(run()) != decisions(real_run)
    except ReplayError:
        return True
