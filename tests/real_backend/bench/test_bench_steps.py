"""Steps that are run again and again, and what is measured of them and of the device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.real_backend.cpu_engine import load_on_cpu
from tests.real_backend.devices import on_gpu
from tests.real_backend.packaged_models import random_weights
from tests.real_backend.tiny_qwen3 import save_checkpoint
from twinserve.real_backend.bench import step_timing
from twinserve.real_backend.bench.peaks import measure_peaks
from twinserve.real_backend.bench.probe import probe
from twinserve.real_backend.bench.repeated_step import repeatable
from twinserve.real_backend.bench.results import StepTiming
from twinserve.real_backend.bench.step_timing import measure_step, measure_steps
from twinserve.real_backend.engine_config import EngineConfig, EngineOptions, ModelSource
from twinserve.real_backend.engine_loader import LoadedEngine
from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.profiling.shape import Row
from twinserve.sched_core.config import SchedulerConfig

CONFIG = SchedulerConfig(
    num_blocks=24, block_size=8, max_num_batched_tokens=40, max_num_seqs=5, max_model_len=128,
    scheduler_reserve_full_isl=False,
)  # fmt: skip
ROWS = [Row(30, 1), Row(7, 1), Row(0, 20), Row(16, 5)]


@pytest.fixture(scope="module")
def loaded(folder: Path) -> LoadedEngine:
    return load_on_cpu(folder, CONFIG, kv_cache_noise=True)


def test_every_repetition_draws_the_same_tokens(loaded: LoadedEngine) -> None:
    """Noise in the KV cache, seeds and positions stay what they were."""
    with repeatable(loaded, ROWS) as plan:
        draws = []
        for _ in range(3):
            loaded.runner.launch(plan)
            draws.append(loaded.runner.collect().token_ids)
    assert len(draws[0]) == len(ROWS)
    assert all(np.array_equal(draw, draws[0]) for draw in draws)


def test_slots_are_free_again_afterwards(loaded: LoadedEngine) -> None:
    for _ in range(3):
        with repeatable(loaded, [Row(3, 1)] * CONFIG.max_num_seqs):
            pass


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([Row(127, 1)], "needs 128 keys in a row; engine.max_model_len allows 127"),
        ([Row(1, 1)] * 6, "needs 6 rows; engine.max_num_seqs allows 5"),
        ([Row(0, 21)] * 2, "needs 42 tokens; engine.max_num_batched_tokens allows 40"),
        ([Row(100, 1)] * 2, "needs 26 blocks of 8; the KV pool allows 24"),
    ],
)
def test_a_step_that_does_not_fit_says_why(loaded: LoadedEngine, rows: list[Row], reason: str) -> None:
    with pytest.raises(EngineError, match=reason), repeatable(loaded, rows):
        pass
    timing = measure_step(loaded, "large", rows, repeats=1)
    assert timing.error == reason
    assert timing.step_ms is None


def test_on_the_cpu_a_step_has_a_time_but_no_device_and_no_kernels(loaded: LoadedEngine) -> None:
    timing = measure_step(loaded, "mixed", ROWS, repeats=2)
    assert timing.step_ms is not None
    assert timing.step_ms > 0
    assert (timing.device_ms, timing.trace, timing.error) == (None, None, None)
    assert (timing.graph_mode, timing.num_padded_tokens) == ("eager", 27)


def on_cpu(source: ModelSource) -> EngineConfig:
    return EngineConfig(model=source, scheduler=CONFIG, options=EngineOptions(device="cpu"))


def test_the_cpu_has_no_peaks_but_the_models_shapes_are_known(tmp_path: Path) -> None:
    source = ModelSource(path=str(save_checkpoint(tmp_path)))
    found = probe(on_cpu(source))
    assert (found.device, found.peaks) == ("cpu", None)
    assert (found.model.hidden_size, found.model.dtype_bytes) == (64, 4)


def test_all_steps_are_timed_before_any_is_traced(loaded: LoadedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracer that has run may slow the launches after it."""
    log: list[str] = []
    time_step = step_timing._time_step

    def timed(*arguments: object) -> StepTiming:
        log.append("timed")
        return replace(time_step(*arguments), device_ms=1.0)  # as on a device, or nothing is traced

    monkeypatch.setattr(step_timing, "load_engine", lambda *arguments: loaded)
    monkeypatch.setattr(step_timing, "_time_step", timed)
    monkeypatch.setattr(step_timing, "trace_steps", lambda step, repeats: log.append("traced"))
    steps = {"decode": [(3, 1)], "prefill": [(0, 20)], "too long": [(127, 1)]}
    timings, _ = measure_steps(on_cpu(ModelSource()), steps, repeats=1)
    assert log == ["timed", "timed", "traced", "traced"]
    assert [timing.name for timing in timings] == list(steps)


@pytest.mark.parametrize("mark", [pytest.param("gpu", marks=on_gpu)])
def test_peaks_of_a_device_are_of_a_plausible_size(mark: str) -> None:
    peaks = measure_peaks(torch.device("cuda"), torch.bfloat16)
    assert 1 < peaks.matmul_tflops < 10_000
    assert 0.05 < peaks.copy_tbps < 50
    assert 0 < peaks.graph_node_us < 100
    assert 0 < peaks.launch_us < 1000


@pytest.mark.parametrize("enforce_eager", [pytest.param(flag, marks=on_gpu) for flag in (True, False)])
def test_every_part_of_a_step_is_found_in_its_trace(enforce_eager: bool) -> None:
    scheduler = replace(CONFIG, block_size=256, max_num_batched_tokens=512, max_num_seqs=64, max_model_len=2048)
    options = EngineOptions(num_gpu_blocks_override=400, enforce_eager=enforce_eager)
    wanted = EngineConfig(model=random_weights("Qwen/Qwen3-0.6B"), scheduler=scheduler, options=options)
    steps = {"decode": [(1023, 1)] * 64, "mixed": [(1023, 1)] * 63 + [(0, 449)]}
    timings, _ = measure_steps(wanted, steps, repeats=5)
    for timing in timings:
        assert timing.trace is not None
        parts = timing.trace.part_ms
        assert all(parts[part] > 0 for part in ("gemm", "attention", "pointwise", "head", "sampling"))
        assert parts["other"] < 0.25 * sum(parts.values())
        heads = [kernel for kernel in timing.trace.kernels if kernel.part == "head"]
        assert all(kernel.launches <= 2 for kernel in heads)
