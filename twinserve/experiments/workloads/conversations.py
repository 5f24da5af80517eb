"""Prompts with shared beginnings: system prompts of client groups, and conversations that quote earlier turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from twinserve.experiments.settings.schema import PositiveInt, Seconds, Section
from twinserve.experiments.workloads.arrivals import NS_PER_S
from twinserve.experiments.workloads.fields import NonNegativeFloat
from twinserve.experiments.workloads.lengths import LengthConfig
from twinserve.experiments.workloads.request_columns import PromptMaker
from twinserve.experiments.workloads.streams import RandomStreams, weighted_choice
from twinserve.experiments.workloads.token_streams import output_stream, prompt_stream, shared_prefix_stream
from twinserve.run_core.traffic import FollowUp
from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.prompt import Prompt, Segment


class SharedPrefix(Section):
    """``num_groups`` system prompts of ``prefix_len`` tokens, put before the input of each conversation.

    Group k (from 1) is chosen with probability proportional to ``k ** -zipf_theta``; 0 makes all equally popular.
    """

    num_groups: PositiveInt = 1
    prefix_len: PositiveInt
    zipf_theta: NonNegativeFloat = 0.0

    def draw_groups(self, size: int, streams: RandomStreams) -> list[int]:
        popularity = np.arange(1, self.num_groups + 1, dtype=np.float64) ** -self.zipf_theta
        return [int(group) for group in weighted_choice(popularity, size, streams.generator("prefix_group"))]


class Sessions(Section):
    """Conversations: each request after the first quotes all turns before it and is sent after a think time.

    ``turns`` is the number of requests of a conversation; ``think_time_s`` is the mean time from an answer to the
    next request.
    """

    turns: LengthConfig
    think_time_s: Seconds = 0.0
    think_time_dist: Literal["constant", "exponential"] = "exponential"

    def draw_think_ns(self, size: int, streams: RandomStreams) -> Ints:
        unit = (
            np.ones(size) if self.think_time_dist == "constant" else streams.generator("think").exponential(size=size)
        )
        return np.rint(unit * (self.think_time_s * NS_PER_S)).astype(np.int64)


@dataclass(slots=True)
class Conversations:
    """Composed prompts by request id, and how requests depend on each other."""

    prompts: dict[int, Prompt] = field(default_factory=dict)
    follow_ups: dict[int, FollowUp] = field(default_factory=dict)
    output_streams: dict[int, int] = field(default_factory=dict)

    def prompt_maker(self) -> PromptMaker:
        def prompt_of(request_id: int, length: int) -> Prompt:
            prompt = self.prompts[request_id]
            return prompt if length == len(prompt) else Prompt(prompt.slice(0, length))

        return prompt_of

    def add(self, request_ids: range, said: Ints, answered: Ints, think_ns: Ints, prefix: Segment | None) -> None:
        """One conversation: turn k says ``said[k]`` new tokens and is answered with ``answered[k]``."""
        history = [] if prefix is None else [prefix]
        turns = zip(request_ids, said.tolist(), answered.tolist(), think_ns.tolist(), strict=True)
        for request_id, num_said, num_answered, delay_ns in turns:
            history.append(Segment(prompt_stream(request_id), 0, num_said))
            self.prompts[request_id] = Prompt(history)
            if request_id + 1 in request_ids:
                self.output_streams[request_id] = output_stream(request_id)
                history.append(Segment(output_stream(request_id), 0, num_answered))
            if request_id > request_ids.start:
                self.follow_ups[request_id] = FollowUp(after=request_id - 1, delay_ns=delay_ns)


def prefix_segments(config: SharedPrefix | None, size: int, streams: RandomStreams) -> list[Segment | None]:
    """The shared beginning of each of ``size`` conversations; None where there is none."""
    if config is None:
        return [None] * size
    return [Segment(shared_prefix_stream(group), 0, config.prefix_len) for group in config.draw_groups(size, streams)]


def spans(turns: Ints, num_requests: int) -> list[range]:
    """Consecutive request ids of each conversation, the last one cut at ``num_requests`` in all."""
    ends = np.minimum(np.cumsum(turns), num_requests)
    starts = np.concatenate(([0], ends[:-1]))
    return [range(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True) if start < end]
