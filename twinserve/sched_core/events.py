"""What happened, told by ``EngineCore`` to its driver: events and typed reasons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from twinserve.sched_core.plan import Ints


class FinishReason(StrEnum):
    """Why a request ended. ``stop`` and ``length`` are a user's normal ends (vLLM's names)."""

    STOP = "stop"
    LENGTH = "length"
    ABORTED = "abort"
    KV_CAPACITY = "kv_capacity"  # its tokens no longer fit the whole block pool


class RefusalReason(StrEnum):
    """Why a request was never accepted: it could not run even alone."""

    EMPTY_PROMPT = "empty_prompt"
    NO_OUTPUT = "max_tokens_below_one"
    DUPLICATE_ID = "duplicate_request_id"
    EXCEEDS_MODEL_LEN = "prompt_exceeds_max_model_len"
    EXCEEDS_TOKEN_BUDGET = "prompt_exceeds_max_num_batched_tokens"
    EXCEEDS_KV_CACHE = "prompt_exceeds_kv_cache"
    QUEUE_FULL = "queue_full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Answer to ``add_request``: ``refusal`` is None when the request was queued."""

    request_id: int
    refusal: RefusalReason | None = None
    detail: str = ""

    @property
    def accepted(self) -> bool:
        return self.refusal is None


class TokensSampled(NamedTuple):
    """One new token for each of ``request_ids``; ``token_ids`` is None where a simulation makes ids up."""

    request_ids: Ints
    token_ids: Ints | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """``output_token_ids`` is empty where a simulation makes ids up."""

    request_id: int
    reason: FinishReason
    num_output_tokens: int
    output_token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """Lost its blocks; it waits at the front of the queue and will be recomputed."""

    request_id: int


Event: TypeAlias = TokensSampled | Finished | Preempted
