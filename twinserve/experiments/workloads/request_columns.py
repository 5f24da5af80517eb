"""Requests as columns, the form between a generator or trace and a ``Workload``."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from twinserve.experiments.workloads.token_streams import prompt_stream
from twinserve.run_core.traffic import FollowUp
from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.prompt import Piece, Prompt, Segment, TokenIds

PromptMaker = Callable[[int, int], Prompt]
"""(request id, length) to that request's prompt cut to ``length`` tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestColumns:
    """Columns of shape ``(requests,)`` in order of arrival, and what belongs to all of them.

    ``clients`` is None where nothing names them. ``follow_ups`` are keyed by request id. ``warnings`` and ``info``
    go to the user and into the result.
    """

    request_id: Ints
    arrival_ns: Ints
    input_len: Ints
    output_len: Ints
    prompt_of: PromptMaker
    clients: Sequence[str] | None = None
    follow_ups: Mapping[int, FollowUp] = field(default_factory=dict)
    output_streams: Mapping[int, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.request_id)

    def take(self, index: np.ndarray[Any, Any]) -> RequestColumns:
        """The rows that an integer or boolean index selects."""
        positions = np.arange(len(self))[index].tolist()
        return replace(
            self,
            request_id=self.request_id[index],
            arrival_ns=self.arrival_ns[index],
            input_len=self.input_len[index],
            output_len=self.output_len[index],
            clients=None if self.clients is None else [self.clients[at] for at in positions],
        )

    def with_notes(self, *warnings: str, **info: Any) -> RequestColumns:
        """The same rows with more to say."""
        return replace(self, warnings=(*self.warnings, *warnings), info={**self.info, **info})


def own_prompt(request_id: int, length: int) -> Prompt:
    """A prompt that shares nothing with any other."""
    return Prompt.of_stream(prompt_stream(request_id), length)


def hashed_prompts(hash_ids: Sequence[Sequence[int]], block_size: int) -> PromptMaker:
    """Prompts of blocks named by hash ids; what the ids do not cover is the request's own."""

    def prompt_of(request_id: int, length: int) -> Prompt:
        ids = hash_ids[request_id]
        sizes = [min(block_size, length - start) for start in range(0, length, block_size)]
        covered = sum(sizes[: len(ids)])
        blocks = [Segment(stream, 0, size) for stream, size in zip(ids, sizes, strict=False)]
        return Prompt([*blocks, Segment(prompt_stream(request_id), 0, length - covered)])

    return prompt_of


def written_prompts(token_ids: Sequence[Sequence[int] | None]) -> PromptMaker:
    """Prompts whose token ids are given; a longer (scaled) prompt goes on as the request's own."""

    def prompt_of(request_id: int, length: int) -> Prompt:
        ids = array("q", token_ids[request_id] or ())[:length]
        pieces: list[Piece] = [TokenIds(ids)] if ids else []
        if length > len(ids):
            pieces.append(Segment(prompt_stream(request_id), 0, length - len(ids)))
        return Prompt(pieces)

    return prompt_of
