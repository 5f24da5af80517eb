"""What a caller tells the engine about a request."""

from __future__ import annotations

from dataclasses import dataclass, field

from twinserve.sched_core.requests.prompt import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn and when a request stops; names as in vLLM.

    The scheduler reads the stop rules only (``max_tokens`` is on the request); the rest is for a model.
    ``temperature`` 0 means greedy; ``top_k`` None and ``top_p`` 1.0 mean no truncation.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    eos_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0

    @property
    def ending_ids(self) -> frozenset[int]:
        """Token ids that end the request: stop ids, and end-of-sequence unless it is ignored."""
        return frozenset(self.stop_token_ids) | (frozenset() if self.ignore_eos else frozenset(self.eos_token_ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """One request as it arrives.

    ``request_id`` is unique within a run and not negative. ``arrival_ns`` is the *scheduled* arrival, the origin of
    every latency. A smaller ``priority`` is served first (vLLM). ``predicted_output_len`` is a hint for policies,
    which never see the true length. ``output_stream`` names the stream that made-up output tokens belong to, so
    that a later turn of the same conversation can quote them; None gives the request a stream of its own.
    """

    request_id: int
    prompt: Prompt
    max_tokens: int
    arrival_ns: int = 0
    priority: int = 0
    client: str = ""
    predicted_output_len: int | None = None
    cache_salt: str = ""
    extra_keys: tuple[str, ...] = ()
    output_stream: int | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt)
