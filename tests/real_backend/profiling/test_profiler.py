"""The profiler on a tiny model: its plans are ones that a scheduler could make, and its rows tell what was run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.real_backend.cpu_engine import load_on_cpu
from twinserve.real_backend.engine_config import EngineOptions, ModelSource
from twinserve.real_backend.engine_loader import LoadedEngine, load_engine
from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.inputs.input_batch import InputBatch
from twinserve.real_backend.launch.runner import ModelRunner
from twinserve.real_backend.profiling.engine_runs import MAX_PROMPT_TOKENS, EngineRuns, engine_runs
from twinserve.real_backend.profiling.grid import make_grid
from twinserve.real_backend.profiling.measurement import PROFILE_COLUMNS
from twinserve.real_backend.profiling.plans import Placer
from twinserve.real_backend.profiling.profile import Profile
from twinserve.real_backend.profiling.shape import Limits, Shape
from twinserve.real_backend.profiling.visits import STEPS_PER_VISIT
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes
from twinserve.sched_core.features import StepFeatures, step_features
from twinserve.sched_core.plan import StepPlan
from twinserve.sched_core.policies.registry import build_policies

CONFIG = SchedulerConfig(num_blocks=40, block_size=8, max_num_batched_tokens=24, max_num_seqs=4, max_model_len=64)
LIMITS = Limits.of(CONFIG)
SIZES = CaptureSizes(decode=(1, 2, 4), mixed=(8, 16))


def load(folder: Path) -> LoadedEngine:
    return load_on_cpu(folder, CONFIG, kv_cache_noise=True)


def with_sizes(loaded: LoadedEngine, sizes: CaptureSizes) -> LoadedEngine:
    """The same engine, dispatching as if it had graphs; it runs what they stand for kernel by kernel."""
    one = loaded.runner
    buffers, vocab_size = one._inputs.buffers, loaded.model_config.vocab_size
    inputs = InputBatch(buffers, vocab_size=vocab_size, seed=0, capture_sizes=sizes)
    runner = ModelRunner(one._executor, inputs, one._timer)
    return replace(loaded, runner=runner)


def profile_of(loaded: LoadedEngine, num_visits: int = 2) -> Profile:
    return Profile(loaded, build_policies, seed=0, num_visits=num_visits, density=0.1)


class Spy:
    """Keeps what the runner launches."""

    def __init__(self, runner: ModelRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plans: list[StepPlan] = []
        launch = runner.launch

        def keep(plan: StepPlan) -> None:
            self.plans.append(plan)
            launch(plan)

        monkeypatch.setattr(runner, "launch", keep)


def shapes() -> tuple[Shape, ...]:
    return make_grid(LIMITS, NO_GRAPHS, density=0.1).shapes


def features_of(row: tuple[object, ...]) -> StepFeatures:
    named = dict(zip(PROFILE_COLUMNS, row, strict=True))
    return StepFeatures(*(named[name] for name in StepFeatures._fields))


def column(rows: list[tuple[object, ...]], name: str) -> list[object]:
    return [row[PROFILE_COLUMNS.index(name)] for row in rows]


@pytest.mark.parametrize("num_started", [0, 1, None])
def test_plans_say_what_the_shape_says_and_own_their_blocks(num_started: int | None) -> None:
    placer = Placer(LIMITS, (0,))
    for shape in shapes():
        placed = placer.place(shape)
        plan = placed.plan(7, len(shape.rows) if num_started is None else num_started)
        assert plan.num_computed.tolist() == [row.num_computed for row in shape.rows]
        assert plan.num_new.tolist() == [row.num_new for row in shape.rows]
        assert (plan.num_tokens, plan.num_samples) == (plan.num_new.sum(), plan.samples.sum())
        assert len(plan.new_block_ids) == plan.num_new_blocks.sum()
        assert [started.spec.request_id for started in plan.started] == (
            plan.request_ids[plan.num_rows - len(plan.started) :].tolist()
        )
        blocks = [block for table in placed.block_ids for block in table]
        assert len(set(blocks)) == len(blocks) == CONFIG.num_blocks - plan.num_free_blocks
        assert set(blocks) <= set(range(CONFIG.num_blocks))
        for row, table, spec in zip(shape.rows, placed.block_ids, placed.specs, strict=True):
            assert (len(table) - 1) * CONFIG.block_size < row.context <= len(table) * CONFIG.block_size
            assert (spec.num_prompt_tokens > row.context) is not row.samples


def test_blocks_are_scattered_over_the_pool_and_requests_are_never_the_same() -> None:
    placer = Placer(replace(LIMITS, num_blocks=500), (0,))
    places = [placer.place(shape) for shape in shapes()]
    tables = [np.array(table) for placed in places for table in placed.block_ids if len(table) > 1]
    neighbours = np.concatenate([np.diff(table) == 1 for table in tables])
    assert neighbours.mean() < 0.05
    ids = [request_id for placed in places for request_id in placed.request_ids]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("sizes", [NO_GRAPHS, SIZES])
def test_rows_hold_the_features_of_the_plans_that_ran(
    folder: Path, sizes: CaptureSizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = with_sizes(load(folder), sizes)
    profile, spy = profile_of(loaded), Spy(loaded.runner, monkeypatch)
    pieces = dict(zip(profile.pieces, profile.measure(), strict=True))
    ran = iter(spy.plans)
    for piece, rows in pieces.items():
        plans = plans_of_piece(ran, piece.shape_id < len(profile.grid.shapes), len(rows))
        assert [features_of(row) for row in rows] == [step_features(plan, sizes) for plan in plans]
    assert next(ran, None) is None


def plans_of_piece(ran: Iterator[StepPlan], is_visit: bool, num_rows: int) -> list[StepPlan]:
    """The measured plans of a piece: a visit begins with one that is not."""
    if is_visit:
        assert len(next(ran).started) > 0
    return [next(ran) for _ in range(num_rows)]


def test_a_visit_measures_steady_steps_and_one_with_rows_that_start(folder: Path) -> None:
    profile = profile_of(load(folder), num_visits=1)
    by_shape = {piece.shape_id: rows for piece, rows in zip(profile.pieces, profile.measure(), strict=True)}
    for shape_id, shape in enumerate(profile.grid.shapes):
        rows = by_shape[shape_id]
        *steady, last = column(rows, "num_started")
        assert set(steady) == {0}
        assert 1 <= last <= len(shape.rows)
        assert set(column(rows, "source")) == {"runner"}
        assert set(column(rows, "family")) == {shape.family}
        assert column(rows, "repeat") == list(range(STEPS_PER_VISIT))
        assert all(interval > 0 for interval in column(rows, "interval_ns"))
        assert set(column(rows, "device_ns")) == {None}
    assert {len(rows) for rows in by_shape.values()} > {STEPS_PER_VISIT}


def test_engine_runs_prefill_decode_and_start_requests_beside_others(folder: Path) -> None:
    profile = profile_of(load(folder), num_visits=1)
    first = len(profile.grid.shapes)
    runs = [rows for piece, rows in zip(profile.pieces, profile.measure(), strict=True) if piece.shape_id >= first]
    assert len(runs) == len(engine_runs(CONFIG.max_num_seqs))
    rows = [row for run in runs for row in run]
    assert set(column(rows, "source")) == set(column(rows, "family")) == {"engine"}
    assert all(column(run, "repeat") == list(range(len(run))) for run in runs)
    features = [features_of(row) for row in rows]
    assert any(each.num_decodes == CONFIG.max_num_seqs for each in features)
    assert any(each.num_tokens == CONFIG.max_num_batched_tokens for each in features)
    assert any(each.num_started and each.num_decodes for each in features)


@pytest.mark.parametrize("max_num_seqs", [1, 7, 64, 256])
def test_engine_runs_end_with_the_largest_batch_refilled(max_num_seqs: int) -> None:
    *runs, last = engine_runs(max_num_seqs)
    assert {run.max_concurrency for run in runs} <= set(range(1, max_num_seqs + 1))
    assert any(run.num_requests == run.max_concurrency == max_num_seqs for run in runs)
    assert last.num_requests > last.max_concurrency == max_num_seqs
    assert last.seconds == max(run.seconds for run in (*runs, last))


def test_a_run_whose_time_is_up_starts_nothing_more_and_ends(folder: Path) -> None:
    loaded = load(folder)
    runs = EngineRuns(loaded.runner, loaded.scheduler, build_policies, seed=0, density=0.0)
    for number, run in enumerate(runs.runs):
        features = [features_of(row) for row in runs.measure(number, 0)]
        assert sum(each.num_started for each in features) <= run.max_concurrency
    assert len(loaded.runner._inputs._free_slots) == CONFIG.max_num_seqs


def test_requests_of_engine_runs_stay_within_bounds_where_they_may_be_very_long(folder: Path) -> None:
    long = replace(CONFIG, max_model_len=131_072, max_num_seqs=256)
    runs = EngineRuns(load(folder).runner, long, build_policies, seed=0)
    for number, run in enumerate(runs.runs):
        requests, output_lens = runs._requests(run, number)
        lengths = [spec.num_prompt_tokens for spec in requests]
        assert len(lengths) == len(output_lens) == run.num_requests
        assert max(lengths) * run.max_concurrency <= 2 * MAX_PROMPT_TOKENS
        assert max(lengths) <= long.max_model_len / 2


def test_each_piece_is_there_once_and_the_engine_runs_come_before_half_of_the_shapes(folder: Path) -> None:
    profile = profile_of(load(folder), num_visits=3)
    count, num_runs = len(profile.grid.shapes), len(engine_runs(CONFIG.max_num_seqs))
    pieces = profile.pieces
    assert len(set(pieces)) == len(pieces) == 3 * count + num_runs
    middle = pieces[count // 2 : count // 2 + num_runs]
    assert [piece.shape_id for piece in middle] == list(range(count, count + num_runs))
    first_round = [piece for piece in pieces[: count + num_runs] if piece not in middle]
    assert {piece.shape_id for piece in first_round} == set(range(count))
    orders = [[piece.shape_id for piece in pieces if piece.visit == visit] for visit in (1, 2)]
    assert sorted(orders[0]) == sorted(orders[1]) != orders[0] != orders[1]


def test_what_is_done_is_not_measured_again(folder: Path) -> None:
    profile = profile_of(load(folder), num_visits=1)
    done = {piece.first for piece in profile.pieces[::2]}
    left = [(rows[0][1], rows[0][2]) for rows in profile.measure(done)]
    assert left == [piece.first for piece in profile.pieces[1::2]]


def test_the_estimate_shrinks_with_what_is_done(folder: Path) -> None:
    profile = profile_of(load(folder))
    assert profile.estimate_s() > 0
    assert profile.estimate_s({piece.first for piece in profile.pieces}) == 0


def test_no_request_is_left_in_the_runner(folder: Path) -> None:
    loaded = load(folder)
    for _ in profile_of(loaded, num_visits=1).measure():
        assert len(loaded.runner._inputs._free_slots) == CONFIG.max_num_seqs


def test_running_out_of_memory_is_one_line_and_leaves_the_runner_usable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(folder)
    profile = profile_of(loaded, num_visits=1)
    measured = profile.measure()
    next(measured)

    def forward(*args: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore lines")

    with monkeypatch.context() as patch:
        patch.setattr(loaded.runner._executor, "forward", forward)
        with pytest.raises(EngineError, match="the device is out of memory while running step"):
            next(measured)
    assert next(iter(profile.measure()))


def test_a_profiled_engine_has_noise_in_its_kv_cache_and_an_ordinary_one_zeros(folder: Path) -> None:
    options = EngineOptions(device="cpu", num_gpu_blocks_override=8)
    plain = load_engine(ModelSource(path=str(folder)), CONFIG, options).runner._executor._kv_caches
    noisy, again = load(folder).runner._executor._kv_caches, load(folder).runner._executor._kv_caches
    assert not any(tensor.any() for pair in plain for tensor in pair)
    for pair, same in zip(noisy, again, strict=True):
        assert all(0.9 < float(tensor.std()) < 1.1 for tensor in pair)
        assert all(torch.equal(one, other) for one, other in zip(pair, same, strict=True))
