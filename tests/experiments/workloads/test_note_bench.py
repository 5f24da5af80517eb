"""The published benchmark, bit for bit."""

from __future__ import annotations

import csv
from pathlib import Path
from random import Random

import pytest

from tests.experiments.helpers.workload_builders import arrivals_ns, build, input_lens, output_lens
from tests.paths import real_trace
from twinserve.real_backend.inputs.token_ids import prompt_token_ids
from twinserve.sched_core.requests.prompt import TokenIds


def note(rate: float = 2.0, **keys: object) -> object:
    return build(kind="note_bench", arrival={"process": "poisson", "request_rate": rate}, **keys)


def test_seed_zero_has_the_published_totals() -> None:
    workload = note()
    assert len(workload.requests) == 256
    assert sum(input_lens(workload)) == 288_909
    assert sum(output_lens(workload)) == 40_342


def test_first_requests_are_those_of_the_published_draw() -> None:
    workload = note()
    assert input_lens(workload)[:4] == [1857, 1057, 424, 1950]
    assert output_lens(workload)[:4] == [162, 127, 179, 167]
    assert arrivals_ns(workload)[:4] == [0, 72_145_532, 1_012_223_665, 1_733_708_127]


def test_every_row_of_the_regenerated_file_is_met() -> None:
    with Path(real_trace("nano_vllm_bench/workload_seed0_256.csv")).open() as file:
        rows = list(csv.DictReader(file))
    workload = note()
    assert arrivals_ns(workload) == [round(float(row["arrival_time_s_rate2"]) * 1e9) for row in rows]
    assert input_lens(workload) == [int(row["input_tokens"]) for row in rows]
    assert output_lens(workload) == [int(row["output_tokens"]) for row in rows]


def test_infinite_rate_sends_all_at_zero_with_the_same_lengths() -> None:
    assert set(arrivals_ns(note(float("inf")))) == {0}
    assert input_lens(note(float("inf"))) == input_lens(note())


def test_exact_token_ids_are_the_benchmarks_own() -> None:
    draw = Random(0)
    first_len, _ = draw.randint(128, 2048), draw.randint(64, 256)
    expected = [draw.randrange(151_643) for _ in range(first_len)]
    prompt = note(exact_token_ids=True, num_prompts=2).requests[0].prompt
    assert isinstance(prompt.pieces[0], TokenIds)
    assert prompt_token_ids(prompt, 151_643).tolist() == expected


def test_another_seed_or_repeat_is_another_draw() -> None:
    draws = [
        tuple(input_lens(note(num_prompts=5, seed=seed, repeat=repeat))) for seed, repeat in [(0, 0), (1, 0), (0, 1)]
    ]
    assert len(set(draws)) == 3


def test_fewer_prompts_are_the_first_of_more() -> None:
    assert note(num_prompts=10).requests == note().requests[:10]


@pytest.mark.parametrize("rate", [1.0, 4.0])
def test_rate_only_scales_the_schedule(rate: float) -> None:
    scaled = [time * 2.0 / rate for time in arrivals_ns(note())]
    assert arrivals_ns(note(rate)) == pytest.approx(scaled, abs=2)
