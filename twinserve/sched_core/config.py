"""The scheduler's settings, with vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

HashAlgorithm = Literal["xxh3_128", "sha256"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits and switches of one engine.

    ``num_blocks`` and ``block_size`` (tokens) give the KV pool. ``max_num_batched_tokens`` is the token budget of a
    step, ``max_num_seqs`` the most requests that run at once. ``long_prefill_token_threshold`` (0 = off) caps one
    request's prefill chunk while others exist; with ``..._adaptive`` the cap is at least a fair share of the budget.
    ``scheduler_reserve_full_isl`` admits a request only if its whole prompt fits now. ``watermark`` keeps that fraction
    of blocks free at admission while something runs (of one more than there are: vLLM counts its null block).
    ``max_head_bypass`` is how many later requests may be admitted past a blocked head (0 = strict order, as vLLM).
    ``prefill_schedule_interval`` N runs at least N - 1 steps without prefill work between steps that carry some (see
    ``PrefillPacing``). ``max_num_queued_reqs`` is how many requests may wait and run at once; further ones are refused,
    None means no limit.
    """

    num_blocks: int
    block_size: int = 16
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 128
    max_model_len: int = 4096
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    prefix_caching_hash_algo: HashAlgorithm = "xxh3_128"
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    max_head_bypass: int = 0
    prefill_schedule_interval: int = 1
    max_num_queued_reqs: int | None = None
