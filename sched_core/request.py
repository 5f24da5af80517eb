"""One request inside the engine: the only mutable object per request."""

from __future__ import annotations

from array import array

from sched_core.prompt import Piece, Prompt, Segment, TokenIds, encode_segments, encode_token_ids
from sched_core.spec import RequestSpec

# Made-up outputs of requests without an output stream of their own choice live above every workload's streams.
_OUTPUT_STREAMS = 1 << 62


class Request:
    """State that outlives a stay in the batch; counters of a running request live in its ``RunningTable`` row.

    ``num_tokens`` is prompt plus sampled tokens and is brought up to date when the request leaves the batch.
    ``output_ids`` holds sampled ids, or stays empty in a simulation that makes them up. ``block_keys`` are the
    prefix-cache keys of the full blocks among the known tokens, ``block_ids`` the blocks owned now, in order.
    ``num_bypassed`` counts the requests admitted past this one while it headed the queue.
    """

    __slots__ = (
        "block_ids",
        "block_keys",
        "ending_ids",
        "num_bypassed",
        "num_output_tokens",
        "num_prompt_tokens",
        "output_ids",
        "output_stream",
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

    def encode_blocks(self, start: int, end: int, size: int) -> list[bytes]:
        """Canonical bytes of each full block of ``size`` tokens among known tokens ``[start, end)``."""
        num_prompt = self.num_prompt_tokens
        if start >= num_prompt:
            return self._encode_output(start - num_prompt, end - num_prompt, size)
        prompt_end = max(start, min(end, num_prompt) // size * size)
        blocks = self.spec.prompt.encode_blocks(start, prompt_end, size)
        if prompt_end < num_prompt and prompt_end + size <= end:
            blocks.append(self._encode_across(prompt_end, prompt_end + size))
            prompt_end += size
        return blocks + self._encode_output(prompt_end - num_prompt, end - num_prompt, size)

    def _encode_output(self, start: int, end: int, size: int) -> list[bytes]:
        """Each full block of ``size`` sampled tokens among those from ``start`` to ``end``."""
        if not self.output_ids:
            return encode_segments(self.output_stream, start, end, size)
        begins = range(start, end - size + 1, size)
        return [encode_token_ids(self.output_ids[begin : begin + size]) for begin in begins]

    def _encode_across(self, start: int, end: int) -> bytes:
        """Bytes of a block that begins in the prompt and ends in the output."""
        num_outputs = end - self.num_prompt_tokens
        output: Piece = Segment(self.output_stream, 0, num_outputs)
        if self.output_ids:
            output = TokenIds(self.output_ids[:num_outputs])
        across = Prompt((*self.spec.prompt.slice(start, self.num_prompt_tokens), output))
        return across.encode(0, end - start)
