"""Cost of one step of the core: ``pytest tests/benchmarks --benchmark-only``.

Prefix caching is on, blocks have 16 tokens, every sampling row is given a real token id. Times are CPU time of this
process, so that other work on the machine disturbs them less.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import pytest

from tests.benchmarks.scenarios import Steps, churn, decodes, decodes_with_chunk, kv_pressure

CPU_TIME = pytest.mark.benchmark(timer=process_time)
ROUNDS = 40


def _time_steps(benchmark: object, steps: Steps, per_round: int = 16) -> None:
    """Time ``per_round`` steps at once, so that every block edge is met equally often."""

    def run() -> None:
        for _ in range(per_round):
            steps.step()

    benchmark.extra_info["steps_per_round"] = per_round  # type: ignore[attr-defined]
    benchmark.pedantic(run, setup=steps.arrive, rounds=ROUNDS, warmup_rounds=2)  # type: ignore[attr-defined]


@CPU_TIME
@pytest.mark.parametrize("num_requests", [1, 32, 256, 1024])
def test_bench_sixteen_decode_steps(benchmark: object, num_requests: int) -> None:
    _time_steps(benchmark, decodes(num_requests))


@CPU_TIME
@pytest.mark.parametrize("budget", [512, 2048, 8192])
def test_bench_sixteen_steps_of_255_decodes_and_a_chunk(benchmark: object, budget: int) -> None:
    _time_steps(benchmark, decodes_with_chunk(budget=budget))


@CPU_TIME
@pytest.mark.parametrize("scenario", [churn, kv_pressure])
def test_bench_one_step_under(benchmark: object, scenario: Callable[[], Steps]) -> None:
    _time_steps(benchmark, scenario(), per_round=1)


def test_decode_scenario_holds_decodes_only() -> None:
    steps = decodes(32)
    for _ in range(20):
        plan = steps.step()
        assert (plan.num_rows, plan.num_tokens, plan.num_samples) == (32, 32, 32)


def test_chunk_scenario_fills_the_budget() -> None:
    steps = decodes_with_chunk(num_decodes=31, budget=256)
    plan = steps.step()
    assert (plan.num_rows, plan.num_tokens, plan.num_samples) == (32, 256, 31)


def test_churn_scenario_admits_and_hits() -> None:
    steps = churn(16)
    for _ in range(100):
        steps.arrive()
        steps.step()
    stats = steps.engine.stats()
    assert stats["prefix_cache_hits"] > 0.8 * stats["prefix_cache_queries"]
    assert stats["num_preemptions"] == 0
