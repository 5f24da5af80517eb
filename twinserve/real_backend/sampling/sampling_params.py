"""Sampling parameters of ``LLM.generate``."""

from __future__ import annotations

from dataclasses import dataclass

from twinserve.sched_core.requests import spec


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one prompt is continued; names and meaning as in vLLM.

    ``temperature`` 0 is greedy; ``top_k`` None and ``top_p`` 1.0 do not truncate; ``seed`` None takes one from the
    engine's seed. At most ``max_tokens`` tokens (>= 1) are made; end-of-sequence stops earlier unless
    ``ignore_eos``, any of ``stop_token_ids`` always does, neither before ``min_tokens``.

    Raises:
        ValueError: a value outside its range.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    max_tokens: int = 64
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be 0 or a positive number, got {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, or None for no limit, got {self.top_k}")
        if not 0 <= self.min_tokens <= self.max_tokens or self.max_tokens < 1:
            raise ValueError(f"0 <= min_tokens <= max_tokens and max_tokens >= 1 must hold, got {self}")

    def with_eos(self, eos_token_ids: tuple[int, ...]) -> spec.SamplingParams:
        """As the scheduler wants them, for a model that ends sequences with one of ``eos_token_ids``."""
        return spec.SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            seed=self.seed,
            ignore_eos=self.ignore_eos,
            stop_token_ids=tuple(self.stop_token_ids),
            eos_token_ids=eos_token_ids,
            min_tokens=self.min_tokens,
        )
