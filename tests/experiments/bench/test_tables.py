"""What the tables of ``twinserve bench-engine`` are made of: rows, limits, host gap, steps taken apart."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from itertools import pairwise

import pytest
from rich.console import Console

from twinserve.experiments.bench.bench_report import BenchRow, StepParts
from twinserve.experiments.bench.bench_table import breakdown_table, figures_text, rows_table
from twinserve.experiments.bench.cases import BREAKDOWN_STEPS, DECODE_1, NAMES, SERVING, select
from twinserve.experiments.bench.device_limits import (
    limit_settings,
    measured_hardware,
    step_floors,
    whole_step_floor,
    write_catalog_files,
)
from twinserve.experiments.bench.host_gap import host_gap
from twinserve.experiments.bench.plot import plot_breakdown
from twinserve.experiments.bench.published import PUBLISHED, is_comparable
from twinserve.experiments.bench.session import Session
from twinserve.experiments.config.catalog import load_model
from twinserve.experiments.config.load import load_experiment
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.plots.style import save
from twinserve.experiments.run import run_experiment
from twinserve.experiments.settings.overrides import Override

H200 = measured_hardware("NVIDIA H200", 139.8, matmul_tflops=788.0, copy_tbps=4.3)
MS = 1_000_000


@pytest.fixture
def qwen3_8b(tmp_path):
    return load_model("Qwen/Qwen3-8B", "bfloat16", tmp_path)


def text_of(table) -> str:
    text = StringIO()
    Console(width=200, file=text).print(table)
    return text.getvalue()


# Rows


def test_names_select_rows_and_none_selects_all():
    assert select(()).names == set(NAMES)
    assert select(["decode-1, graphs-512", "rate-512"]).names == {"decode-1", "graphs-512", "rate-512"}
    assert [case.name for case in select(["host-gap"]).serving] == ["graphs-8192"]
    assert list(select(["breakdown"]).steps) == [case.name for case in BREAKDOWN_STEPS]


@pytest.mark.parametrize("case", SERVING, ids=lambda case: case.name)
def test_every_row_is_a_valid_experiment_of_the_packaged_configuration(case, tmp_path):
    session = Session(config="bench/engine", overrides=(), out=tmp_path)
    config = session.experiment(case.name, case.settings()).config
    engine = config.engine
    assert (engine.max_num_batched_tokens, engine.max_num_seqs, engine.enforce_eager) == (
        case.budget,
        case.seqs,
        case.eager,
    )
    assert config.workload.arrival.request_rate == case.rate
    assert case.name in PUBLISHED
    assert all(figures.keys() == set(case.figures) for figures in PUBLISHED[case.name].values())


def test_rows_show_limits_and_published_engines_where_there_are_any():
    figures = {"output_throughput": 3330.2}
    rows = [
        BenchRow(
            name="a",
            title="eager",
            unit="tok/s",
            figures=figures,
            published={"vLLM 0.24": {"output_throughput": 1392.0}},
        ),
        BenchRow(
            name="b",
            title="one",
            unit="x / y, ms",
            figures={"x": 1.5, "y": None},
            limit={"x": 1.0, "y": 1.0},
            note="three steps",
        ),
        BenchRow(name="c", title="none", unit="ms", reason="the KV pool is too small"),
    ]
    text = text_of(rows_table(rows))
    assert "3,330" in text
    assert "1,392" in text
    assert [line.split() for line in text.splitlines() if ", ms" in line] == [
        ["x,", "ms", "1.50", "1.00", "-"],
        ["y,", "ms", "-", "1.00", "-"],
    ]
    assert "the KV pool is too small" in text
    assert "nano-vllm" not in text
    assert "vLLM" not in text_of(rows_table(rows[1:]))


def test_figures_that_agree_are_given_once():
    names = {"a": 0.0, "b": 0.0}
    assert figures_text({"a": 3.5563, "b": 3.5563}, names) == "3.56"
    assert figures_text({"a": 1392.4, "b": 145.44}, names) == "1,392 / 145"
    assert figures_text({}, names) == "-"


def test_published_figures_are_shown_for_their_own_device_model_and_workload_only():
    config = load_experiment("bench/engine").config
    fewer = load_experiment("bench/engine", [Override(key="workload.num_prompts", value=32, source="test")]).config
    assert is_comparable(config, "NVIDIA H200", "Qwen/Qwen3-8B")
    assert not is_comparable(fewer, "NVIDIA H200", "Qwen/Qwen3-8B")
    assert not is_comparable(config, "NVIDIA GeForce RTX 4090", "Qwen/Qwen3-8B")
    assert not is_comparable(config, "NVIDIA H200", "Qwen/Qwen3-4B")


# Limits


@pytest.mark.parametrize(
    ("rows", "floor"),
    [([(1023, 1)], 3.56), ([(1023, 1)] * 32, 4.64), ([(1023, 1)] * 128, 8.01), ([(0, 512)], 9.3), ([(0, 2048)], 37.7)],
)
def test_floors_of_qwen3_8b_on_an_h200_are_the_known_ones(qwen3_8b, rows, floor):
    """Bytes over bandwidth, operations over peak; activations of matrix products add up to 2 % to the known ones."""
    assert whole_step_floor(step_floors(H200, qwen3_8b, rows)) == pytest.approx(floor, rel=0.02)


def test_every_part_takes_longer_in_a_larger_step(qwen3_8b):
    floors = [step_floors(H200, qwen3_8b, [(1023, 1)] * count) for count in (1, 16, 256)]
    for smaller, larger in pairwise(floors):
        assert all(smaller[part] <= larger[part] for part in smaller)


def test_a_runs_limit_is_its_simulation_at_the_roofline(tmp_path, qwen3_8b):
    """Twice the device, at most twice the throughput, and more than one times."""
    throughputs = []
    for factor in (1, 2):
        folder = tmp_path / str(factor)
        hardware = replace(H200, tflops=factor * H200.tflops, memory_bandwidth_gbps=factor * H200.memory_bandwidth_gbps)
        write_catalog_files(folder, hardware, qwen3_8b)
        session = Session(config="bench/engine", overrides=(), out=folder, quick=True)
        experiment = session.experiment("limit", SERVING[1].settings(), limit_settings(folder, 500))
        throughputs.append(run_experiment(experiment, folder).result["output_throughput"])
    assert throughputs[1] == pytest.approx(2 * throughputs[0], rel=1e-3)


# Host gap, breakdown, picture


def test_the_host_gap_is_that_of_the_largest_decode_steps():
    steps = {
        "start_ns": [0, 10 * MS, 20 * MS, 30 * MS, 40 * MS],
        "end_ns": [9 * MS, 19 * MS, 27 * MS, 38 * MS, 49 * MS],
        "device_ns": [5 * MS, 8 * MS, 6 * MS, 5 * MS, None],
        "num_rows": [256, 200, 200, 100, 300],
        "num_tokens": [512, 200, 200, 100, 300],
    }
    gap = host_gap(steps)
    assert gap is not None
    assert (gap.num_rows, gap.num_steps) == (200, 2)
    assert gap.mean_ms == gap.median_ms == pytest.approx(1.0)


def test_without_a_timed_decode_step_there_is_no_host_gap():
    steps = {"start_ns": [0], "end_ns": [9], "device_ns": [None], "num_rows": [2], "num_tokens": [2]}
    assert host_gap(steps) is None


def taken_apart(model) -> list[StepParts]:
    """Steps whose parts take a third longer than their floors, 0.2 ms between kernels and 0.5 ms of host gap."""
    steps = []
    for case in BREAKDOWN_STEPS:
        floors = step_floors(H200, model, case.rows)
        parts = {part: floor * 4 / 3 for part, floor in floors.items()} | {"other": 0.05}
        device_ms = sum(parts.values()) + 0.2
        steps.append(
            StepParts(
                name=case.name,
                title=case.title,
                graph_mode="decode",
                num_padded_tokens=256,
                step_ms=device_ms + 0.5,
                device_ms=device_ms,
                parts=parts,
                kernels=({"name": "unheard_of", "part": "other", "launches": 1.0, "ms": 0.05},),
                floors=floors,
            )
        )
    return steps


def test_parts_are_shown_with_their_floor_and_ratio(qwen3_8b):
    steps = taken_apart(qwen3_8b)
    text = text_of(breakdown_table([*steps, StepParts(name="x", title="another", reason="needs 9 rows")]))
    lines = {line[:10].strip(): line for line in text.splitlines()}
    assert lines["GEMM"].count("(1.33)") == 3
    assert lines["host gap"].count("0.50") == 3
    assert "needs 9 rows" in text
    assert "other: unheard_of" in text
    for step in steps:
        assert step.sum_ms == pytest.approx(step.step_ms - 0.2)


def test_the_picture_shows_every_step_that_was_taken_apart(qwen3_8b, tmp_path):
    path = save(plot_breakdown(taken_apart(qwen3_8b), "Qwen/Qwen3-8B on NVIDIA H200"), tmp_path / "steps.png")
    assert path is not None
    assert path.stat().st_size > 10_000
    without = StepParts(name=DECODE_1.name, title=DECODE_1.title, step_ms=1.0)
    assert plot_breakdown([without], "nothing") is None
    assert not (tmp_path / "none.png").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path, qwen3_8b):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_catalog_files(tmp_path / "file" / "out", H200, qwen3_8b)
