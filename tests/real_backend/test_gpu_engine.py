"""The whole engine on a GPU: graphs against eager, cut and interrupted work against whole, memory, failures.

The comparisons run Qwen3-8B's shapes in bfloat16 on random weights.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.real_backend.devices import on_gpu
from tests.real_backend.packaged_models import random_weights
from tests.real_backend.teacher_forcing import Logits, Script, assert_same_choices, forced_logits
from tests.real_backend.tiny_qwen3 import Reference, save_checkpoint
from twinserve.real_backend import LLM, SamplingParams
from twinserve.real_backend.engine_config import EngineOptions
from twinserve.real_backend.engine_loader import LoadedEngine, load_engine
from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.launch.kv_pool import GIB
from twinserve.sched_core.config import SchedulerConfig

pytestmark = on_gpu

QWEN3_8B = random_weights("Qwen/Qwen3-8B")
WHOLE = SchedulerConfig(
    num_blocks=1, block_size=256, max_num_batched_tokens=4096, max_num_seqs=8, max_model_len=2048,
    scheduler_reserve_full_isl=False,
)  # fmt: skip
CHUNKED = replace(WHOLE, max_num_batched_tokens=160)
SCRIPT = Script.random((250, 508, 700, 33, 505, 254), num_outputs=12, vocab_size=151936)
GPU_BACKENDS = ("fa2", "fa3", "torch_varlen", "triton")


@pytest.fixture(autouse=True)
def free_the_device() -> Iterator[None]:
    yield
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@pytest.fixture(scope="module")
def reference() -> Logits:
    """Eager, every prompt in one step, the attention that is torch's own."""
    loaded = load(WHOLE, "sdpa", num_blocks=40, enforce_eager=True)
    return forced_logits(loaded, SCRIPT)[0]


def load(scheduler: SchedulerConfig, attention_backend: str, *, num_blocks: int, **options: Any) -> LoadedEngine:
    wanted = EngineOptions(attention_backend=attention_backend, num_gpu_blocks_override=num_blocks, **options)
    try:
        return load_engine(QWEN3_8B, scheduler, wanted)
    except EngineError as error:
        if "cannot be used" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.parametrize("backend", GPU_BACKENDS)
@pytest.mark.parametrize("enforce_eager", [True, False], ids=["eager", "graphs"])
def test_whole_prompts_choose_the_references_tokens(reference: Logits, backend: str, enforce_eager: bool) -> None:
    found, _ = forced_logits(load(WHOLE, backend, num_blocks=40, enforce_eager=enforce_eager), SCRIPT)
    assert_same_choices(found, reference, relative=2e-2, gap=0.05)


@pytest.mark.parametrize("backend", GPU_BACKENDS)
@pytest.mark.parametrize("enforce_eager", [True, False], ids=["eager", "graphs"])
def test_chunks_and_preemptions_choose_the_references_tokens(
    reference: Logits, backend: str, enforce_eager: bool
) -> None:
    found, record = forced_logits(load(CHUNKED, backend, num_blocks=6, enforce_eager=enforce_eager), SCRIPT)
    assert record.stats["num_preemptions"] > 0
    assert_same_choices(found, reference, relative=2e-2, gap=0.05)


def test_steps_are_timed_on_the_device() -> None:
    _, record = forced_logits(load(CHUNKED, "auto", num_blocks=40), SCRIPT)
    assert all(0 < span < 1e9 for span in record.steps["device_ns"])
    assert "decode" in record.steps["graph_mode"]


def test_the_profiled_pool_stays_within_the_limit() -> None:
    torch.cuda.reset_peak_memory_stats()
    options = EngineOptions(gpu_memory_limit_gib=24.0, enforce_eager=True)
    loaded = load_engine(QWEN3_8B, replace(WHOLE, max_num_batched_tokens=512, max_num_seqs=64), options)
    assert loaded.pool.source == "profiled"
    forced_logits(loaded, SCRIPT)
    assert torch.cuda.max_memory_reserved() <= 24 * GIB
    assert loaded.scheduler.num_blocks * loaded.pool.block_bytes > 2 * GIB


def test_a_limit_below_the_weights_is_one_clear_line() -> None:
    with pytest.raises(EngineError, match=r"out of memory while loading|no KV block fits") as error:
        load_engine(QWEN3_8B, WHOLE, EngineOptions(gpu_memory_limit_gib=12.0))
    assert "\n" not in str(error.value)
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("block_size", [8, 16, 256])
def test_greedy_tokens_equal_transformers_on_the_gpu(tmp_path: Path, block_size: int) -> None:
    """Float32 and torch's own attention, so that the fused kernels alone are new."""
    folder = save_checkpoint(tmp_path)
    engine = LLM(
        folder,
        attention_backend="sdpa",
        block_size=block_size,
        max_model_len=512,
        num_gpu_blocks_override=600 // block_size,
    )
    prompts = [tuple(range(3, 100)), (5, 5, 6), tuple(range(20, 120, 3))]
    outputs = engine.generate(prompts, SamplingParams(temperature=0.0, max_tokens=12), show_progress=False)
    transformers = Reference(folder)
    assert [output["token_ids"] for output in outputs] == [transformers.greedy(prompt, 12) for prompt in prompts]
