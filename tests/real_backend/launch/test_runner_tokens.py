"""Greedy tokens equal transformers', however the scheduler cuts, shares, interrupts and orders the work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.real_backend.tiny_qwen3 import VOCAB_SIZE, Reference
from twinserve.real_backend.engine_config import EngineOptions, ModelSource
from twinserve.real_backend.engine_loader import load_engine
from twinserve.run_core.clock import ManualClock
from twinserve.run_core.record import RunRecord
from twinserve.run_core.session import Session
from twinserve.run_core.traffic import Traffic
from twinserve.run_core.wall_clock_driver import run_in_real_time
from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.policies.registry import build_policies, names
from twinserve.sched_core.requests.prompt import Prompt
from twinserve.sched_core.requests.spec import RequestSpec, SamplingParams

MILLISECOND = 1_000_000
NUM_OUTPUTS = 10


@pytest.fixture(scope="module")
def reference(folder: Path) -> Reference:
    return Reference(folder)


def make_prompts(block_size: int, *, shared: bool) -> list[tuple[int, ...]]:
    """Three prompts that each outgrow their last block while decoding, behind one common block or none."""
    rng = np.random.default_rng(block_size)
    common = rng.integers(0, VOCAB_SIZE, block_size if shared else 0).tolist()
    return [(*common, *rng.integers(0, VOCAB_SIZE, block_size - 2 - index).tolist()) for index in range(3)]


def run(folder: Path, prompts: list[tuple[int, ...]], config: SchedulerConfig, policy: str = "mixed") -> RunRecord:
    specs = [
        RequestSpec(
            request_id=index,
            prompt=Prompt.of_token_ids(prompt),
            max_tokens=NUM_OUTPUTS,
            arrival_ns=4 * MILLISECOND * min(index, 1),
            sampling=SamplingParams(temperature=0.0),
        )
        for index, prompt in enumerate(prompts)
    ]
    options = EngineOptions(device="cpu", num_gpu_blocks_override=config.num_blocks)
    loaded = load_engine(ModelSource(path=str(folder)), config, options)
    session = Session(EngineCore(config, build_policies(policy=policy)), Traffic(specs), check=True)
    return run_in_real_time(session, loaded.runner, ManualClock(tick_ns=MILLISECOND)).complete()


def tokens_of(record: RunRecord, request_id: int) -> list[int]:
    owners, ids = np.asarray(record.tokens["request_id"]), np.asarray(record.tokens["token_id"])
    return ids[owners == request_id].tolist()


@pytest.mark.parametrize("block_size", [8, 16, 256])
@pytest.mark.parametrize("policy", names()["policy"])
@pytest.mark.parametrize("preempted", [False, True], ids=["roomy", "preempted"])
@pytest.mark.parametrize("shared", [False, True], ids=["unshared", "prefix_hit"])
@pytest.mark.parametrize("chunked", [False, True], ids=["whole", "chunked"])
def test_greedy_tokens_equal_transformers(
    folder: Path, reference: Reference, block_size: int, policy: str, preempted: bool, shared: bool, chunked: bool
) -> None:
    prompts = make_prompts(block_size, shared=shared)
    config = SchedulerConfig(
        num_blocks=3 + shared if preempted else 16,
        block_size=block_size,
        max_num_batched_tokens=block_size // 2 + 4 if chunked else 2 * block_size,
        max_num_seqs=3,
        max_model_len=1024,
        enable_chunked_prefill=chunked,
        enable_prefix_caching=shared,
        scheduler_reserve_full_isl=False,
    )
    record = run(folder, prompts, config, policy)
    for request_id, prompt in enumerate(prompts):
        assert tokens_of(record, request_id) == reference.greedy(prompt, NUM_OUTPUTS)
    assert (record.stats["num_preemptions"] > 0) == preempted
    assert (record.stats["prefix_cache_hits"] > 0) == shared
