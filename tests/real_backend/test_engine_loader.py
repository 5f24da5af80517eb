"""Building the engine: sizes of pool and graphs, and one clear line for everything that can be wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from twinserve.real_backend.build import run_engine
from twinserve.real_backend.engine_config import EngineConfig, EngineOptions, ModelSource
from twinserve.real_backend.engine_loader import _capture_sizes, load_engine
from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.launch.kv_pool import GIB, MemoryUse, hold_process_to, size_pool
from twinserve.run_core.record import Recorder
from twinserve.run_core.traffic import Traffic
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes
from twinserve.sched_core.policies.registry import build_policies
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec, SamplingParams

SCHEDULER = SchedulerConfig(num_blocks=1, block_size=8, max_model_len=64)


def load(source: ModelSource, scheduler: SchedulerConfig = SCHEDULER, **options: Any) -> Any:
    defaults = {"device": "cpu", "num_gpu_blocks_override": 4}
    return load_engine(source, scheduler, EngineOptions(**{**defaults, **options}))


def test_the_override_sets_the_pool_and_one_page_more_is_kept_for_padding(folder: Path) -> None:
    loaded = load(ModelSource(path=str(folder)), num_gpu_blocks_override=7)
    assert loaded.scheduler.num_blocks == 7
    assert loaded.pool.source == "num_gpu_blocks_override"
    assert loaded.pool.block_bytes == 8 * 2 * 2 * (2 * 16) * 4  # tokens, K and V, layers, heads x head dim, float32
    assert loaded.runner._executor._kv_caches[0][0].shape == (8, 8, 2, 16)
    assert loaded.facts["kv_pool"]["num_blocks"] == 7


def test_dummy_weights_are_the_same_for_the_same_seed(folder: Path) -> None:
    first, again, other = (
        load(ModelSource(path=str(folder), load_format="dummy"), seed=seed).runner._executor._model.weights.embedding
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_without_a_gpu_the_error_says_what_else_can_be_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        EngineError,
        match=r"real.device: no CUDA device is available; use the device cpu .* or simulate with --backend sim",
    ):
        load(ModelSource(path=str(folder)), device="cuda")


@pytest.mark.parametrize("device", ["gpu", "meta"])
def test_an_odd_device_is_refused(folder: Path, device: str) -> None:
    with pytest.raises(EngineError, match=f"real.device: '{device}' is not"):
        load(ModelSource(path=str(folder)), device=device)


def test_on_the_cpu_the_number_of_blocks_must_be_given(folder: Path) -> None:
    with pytest.raises(EngineError, match=r"engine\.num_gpu_blocks_override: is missing; on the CPU"):
        load(ModelSource(path=str(folder)), num_gpu_blocks_override=None)


def test_a_longer_context_than_the_models_positions_is_refused(folder: Path) -> None:
    scheduler = SchedulerConfig(num_blocks=1, max_model_len=4096)
    with pytest.raises(EngineError, match="max_model_len: 4096 is more than the 1024 positions"):
        load(ModelSource(path=str(folder)), scheduler)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (ModelSource(), "model.path: is missing; give a model folder, or model.load_format: dummy"),
        (ModelSource(load_format="dummy"), "model.path: is missing"),
        (ModelSource(path="nowhere"), "config.json is missing"),
    ],
)
def test_a_model_that_is_not_there_is_named(source: ModelSource, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        load(source)


def test_an_unsupported_architecture_is_named(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["MambaForCausalLM"]}))
    with pytest.raises(EngineError, match="MambaForCausalLM is not supported"):
        load(ModelSource(path=str(tmp_path)))


def test_too_little_memory_while_loading_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 16 GiB")

    monkeypatch.setattr("twinserve.real_backend.engine_loader.Qwen3Model", full)
    with pytest.raises(EngineError, match="out of memory while loading the model") as error:
        load(ModelSource(path=str(folder)))
    assert "\n" not in str(error.value)


def test_the_pool_fills_what_weights_and_the_largest_step_leave() -> None:
    use = MemoryUse(peak_bytes=16 * GIB, other_bytes=GIB)
    pool = size_pool(total_bytes=24 * GIB, gpu_memory_utilization=0.9, use=use, block_bytes=36 << 20)
    assert pool.num_blocks == int((24 * 0.9 - 17) * 1024 / 36) - 1
    assert pool.requested_bytes == int(24 * GIB * 0.9)


def test_a_memory_limit_caps_the_process_and_the_accounting(monkeypatch: pytest.MonkeyPatch) -> None:
    fractions: list[float] = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=96 * GIB))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, device: fractions.append(share))
    device = torch.device("cuda", 0)
    assert hold_process_to(24.0, device) == 24 * GIB
    assert hold_process_to(None, device) == 96 * GIB
    assert fractions == [0.25, 1.0]
    with pytest.raises(EngineError, match=r"gpu_memory_limit_gib: 200\.0 is not within the device's 96\.0 GiB"):
        hold_process_to(200.0, device)


def test_a_gpu_that_does_not_exist_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(EngineError, match="cuda:2 does not exist; there are 2 CUDA devices"):
        load(ModelSource(path=str(folder)), device="cuda:2")


def test_not_one_block_is_an_error_with_the_figures() -> None:
    use = MemoryUse(peak_bytes=21 * GIB, other_bytes=GIB)
    with pytest.raises(EngineError, match=r"no KV block fits: 21\.60 GiB may be used.*need 21\.00.*raise engine\."):
        size_pool(total_bytes=24 * GIB, gpu_memory_utilization=0.9, use=use, block_bytes=36 << 20)


def test_graphs_that_the_attention_backend_cannot_hold_are_refused() -> None:
    fa2 = SimpleNamespace(name="fa2")
    wanted = EngineOptions(capture_sizes=CaptureSizes(decode=(1,), mixed=(16,)))
    with pytest.raises(EngineError, match="fa2 supports graphs of decode steps only"):
        _capture_sizes(wanted, fa2, SCHEDULER)
    assert _capture_sizes(EngineOptions(enforce_eager=True), fa2, SCHEDULER) == NO_GRAPHS
    decode = CaptureSizes(decode=(1, 2))
    assert _capture_sizes(EngineOptions(capture_sizes=decode), fa2, SCHEDULER) == decode


def test_an_experiment_runs_on_an_engine_of_its_own(folder: Path) -> None:
    sampling = SamplingParams(temperature=1.0, ignore_eos=True)
    specs = [
        RequestSpec(request_id=index, prompt=Prompt.of_stream(index, 12), max_tokens=5, sampling=sampling)
        for index in range(3)
    ]
    run = run_engine(
        EngineConfig(
            model=ModelSource(path=str(folder), dtype="float32"),
            scheduler=replace(SCHEDULER, max_num_batched_tokens=16, max_num_seqs=2),
            options=EngineOptions(device="cpu", attention_backend="sdpa", num_gpu_blocks_override=9),
        ),
        policies=build_policies(),
        source=Traffic(specs),
        recorder=Recorder(),
        output_lens={1: 2},
        check=True,
    )
    record = run.outcome.complete()
    assert run.num_blocks == 9
    assert record.requests["output_len"] == [5, 2, 5]
    assert run.manifest["attention_backend"] == "sdpa"
    assert json.dumps(dict(run.manifest))
