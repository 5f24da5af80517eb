"""Settings that are valid each by itself and cannot work together: one warning each, naming both keys."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from twinserve.experiments.config.engine import EngineSection
from twinserve.experiments.config.policies import names_of
from twinserve.experiments.workloads import Workload

WAITING_DECODES = ("prefill_first", "static")
"""Batch compositions under which decodes beyond the token budget wait for those before them to end."""


def combination_warnings(engine: EngineSection, num_blocks: int, workload: Workload) -> tuple[str, ...]:
    """Warnings about ``engine`` with a pool of ``num_blocks`` under ``workload``."""
    return (*_settings(engine, num_blocks), *_requests(engine, num_blocks, workload))


def _settings(engine: EngineSection, num_blocks: int) -> Iterator[str]:
    budget, seqs, length = engine.max_num_batched_tokens, engine.max_num_seqs, engine.max_model_len
    policy = names_of(engine)["policy"]
    if budget < seqs and policy in WAITING_DECODES:
        yield (
            f"engine.max_num_batched_tokens={budget} is below engine.max_num_seqs={seqs}: under {policy}, decodes "
            f"beyond the budget wait for others to end; raise the first or lower the second (vLLM refuses this)"
        )
    capacity = num_blocks * engine.block_size
    if capacity < length:
        yield (
            f"the KV pool of {num_blocks} blocks (engine.num_gpu_blocks_override, engine.gpu_memory_utilization) holds "
            f"{capacity} tokens, below engine.max_model_len={length}: longer requests are refused or end early; raise "
            f"the pool or lower max_model_len (vLLM refuses this)"
        )
    if budget < length and not engine.enable_chunked_prefill:
        yield (
            f"engine.max_num_batched_tokens={budget} is below engine.max_model_len={length} with "
            f"engine.enable_chunked_prefill=false: longer prompts are refused; raise the first (vLLM refuses this)"
        )


def _requests(engine: EngineSection, num_blocks: int, workload: Workload) -> Iterator[str]:
    capacity = num_blocks * engine.block_size
    specs = workload.requests
    prompts = np.array([spec.num_prompt_tokens for spec in specs], dtype=np.int64)
    outputs = (workload.output_lens.get(spec.request_id, spec.max_tokens) for spec in specs)
    wanted = np.minimum(prompts + np.fromiter(outputs, dtype=np.int64, count=len(specs)), engine.max_model_len)
    misfits = int((wanted > capacity).sum())
    if misfits:
        yield (
            f"{misfits} of {len(specs)} requests need more than the {capacity} tokens of the KV pool and can never end "
            f"as asked; raise engine.num_gpu_blocks_override or lower the lengths of workload"
        )
    uncut = int((prompts > engine.max_num_batched_tokens).sum())
    if uncut and not engine.enable_chunked_prefill:
        yield (
            f"{uncut} of {len(specs)} prompts are longer than engine.max_num_batched_tokens="
            f"{engine.max_num_batched_tokens} and are refused with engine.enable_chunked_prefill=false"
        )
