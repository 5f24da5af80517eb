"""One request inside the engine: the only mutable object per request."""

from __future__ import annotations

from array import array

from twinserve.sched_core.requests.prompt import Prompt, TokenIds, encode_segment, encode_token_ids
from twinserve.sched_core.requests.spec import RequestSpec

# Made-up outputs of requests without an output stream of their own choice live above every workload's streams.
_OUTPUT_STREAMS = 1 << 62


class Request:
    """State that outlives a stay in the batch; counters of a running request live in its ``RunningTable`` row.

    ``num_tokens`` is prompt plus sampled tokens and is brought up to date when the request leaves the batch.
    ``output_ids`` holds sampled ids, or stays empty in a simulation that makes them up. ``block_keys`` are the
    prefix-cache keys of the full blocks among the known tokens, ``block_ids`` the blocks owned now, in order.
    ``num_bypassed`` counts the requests admitted past this one while it headed the queue. ``age`` says who is served
    first by priority: (priority, scheduled arrival, id). ``blocked_at`` and ``blocked_until`` remember a failed attempt
    to enter the batch, see ``BlockManager.block``; ``passed_over`` one of all that might have gone past this head.
    """

    __slots__ = (
        "age",
        "block_ids",
        "block_keys",
        "blocked_at",
        "blocked_until",
        "ending_ids",
        "num_bypassed",
        "num_output_tokens",
        "num_prompt_tokens",
        "output_ids",
        "output_stream",
        "passed_over",
        "rank",
        "requeue",
        "spec",
    )

    def __init__(self, spec: RequestSpec) -> None:
        self.spec = spec
        self.ending_ids = spec.sampling.ending_ids
        self.num_prompt_tokens = spec.num_prompt_tokens
        self.num_output_tokens = 0
        self.output_ids: array[int] = array("q")
        self.output_stream = _OUTPUT_STREAMS + spec.request_id if spec.output_stream is None else spec.output_stream
        self.block_ids: list[int] = []
        self.block_keys: list[bytes] = []
        self.num_bypassed = 0
        self.rank: tuple[float, ...] = ()
        self.requeue = 0
        self.age = (spec.priority, spec.arrival_ns, spec.request_id)
        self.blocked_at = self.blocked_until = 0
        self.passed_over = (0, 0, 0)  # blocks returned until then, retries, changes of the queue

    @property
    def request_id(self) -> int:
        return self.spec.request_id

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def is_running(self) -> bool:
        """A request owns blocks exactly while it is in the batch."""
        return bool(self.block_ids)

    @property
    def resumes(self) -> bool:
        """True when it has been in the batch before."""
        return self.requeue < 0

    def encode_block(self, start: int, size: int) -> bytes:
        """Canonical bytes of known tokens ``[start, start + size)``, of which at least the last was sampled."""
        past = start - self.num_prompt_tokens
        if past < 0:
            return self._encode_across(start, past + size)
        if self.output_ids:
            return encode_token_ids(self.output_ids[past : past + size])
        return encode_segment(self.output_stream, past, size)

    def _encode_across(self, start: int, num_outputs: int) -> bytes:
        """Bytes of a block that begins in the prompt and ends in the output."""
        prompt = self.spec.prompt
        if not self.output_ids:  # the first token of a stream continues nothing
            return prompt.encode(start, self.num_prompt_tokens) + encode_segment(self.output_stream, 0, num_outputs)
        pieces = (*prompt.slice(start, self.num_prompt_tokens), TokenIds(self.output_ids[:num_outputs]))
        return Prompt(pieces).encode(0, self.num_prompt_tokens - start + num_outputs)
