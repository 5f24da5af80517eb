"""Logits do not depend on how the scheduler cuts and interrupts the work: float32 on the CPU, to rounding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real_backend.teacher_forcing import Logits, Script, assert_same_choices, forced_logits
from tests.real_backend.tiny_qwen3 import VOCAB_SIZE, save_checkpoint
from twinserve.real_backend.engine_config import EngineOptions, ModelSource
from twinserve.real_backend.engine_loader import load_engine
from twinserve.run_core.record import RunRecord
from twinserve.sched_core.config import SchedulerConfig


@pytest.mark.parametrize(("budget", "num_blocks"), [(512, 40), (24, 40), (24, 14)])
def test_cut_and_interrupted_work_gives_the_logits_of_whole_prompts(
    tmp_path: Path, budget: int, num_blocks: int
) -> None:
    source = ModelSource(path=str(save_checkpoint(tmp_path)))
    script = Script.random((14, 30, 47, 3, 29), num_outputs=12, vocab_size=VOCAB_SIZE)

    def run(budget: int, num_blocks: int) -> tuple[Logits, RunRecord]:
        scheduler = SchedulerConfig(
            num_blocks=1, block_size=8, max_num_batched_tokens=budget, max_num_seqs=8, max_model_len=128
        )
        options = EngineOptions(device="cpu", num_gpu_blocks_override=num_blocks)
        return forced_logits(load_engine(source, scheduler, options), script)

    wanted, _ = run(512, 100)
    found, record = run(budget, num_blocks)
    assert_same_choices(found, wanted, relative=1e-5, gap=1e-3)
    assert (record.stats["num_preemptions"] > 0) == (num_blocks == 14)
