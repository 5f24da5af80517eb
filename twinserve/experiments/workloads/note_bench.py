"""The published nano-vllm benchmark, drawn exactly as its script draws it (junuxyz/nano-vllm-bench)."""

from __future__ import annotations

from random import Random
from typing import Literal

import numpy as np

from twinserve.experiments.settings.schema import RequestCount, Section
from twinserve.experiments.workloads.arrivals import to_ns
from twinserve.experiments.workloads.fields import PositiveOrInf
from twinserve.experiments.workloads.options import RequestOptions
from twinserve.experiments.workloads.request_columns import PromptMaker, RequestColumns, own_prompt
from twinserve.experiments.workloads.streams import RandomStreams
from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.prompt import Prompt

VOCAB_SIZE = 151_643
"""Token ids are below this: Qwen3's vocabulary without its special tokens."""

_MIN_INPUT, _MAX_INPUT = 128, 2048
_MIN_OUTPUT, _MAX_OUTPUT = 64, 256


class NoteArrivals(Section):
    """Poisson at ``request_rate`` requests/s (``inf``: all at once), the first request at time 0."""

    process: Literal["poisson"] = "poisson"
    request_rate: PositiveOrInf


class NoteBenchConfig(RequestOptions):
    """The benchmark's requests; seed 0, repeat 0 is the published draw.

    ``exact_token_ids`` keeps the very token ids for a model; otherwise prompts have the right lengths only.
    """

    kind: Literal["note_bench"]
    num_prompts: RequestCount = 256
    arrival: NoteArrivals
    exact_token_ids: bool = False


def note_rows(config: NoteBenchConfig, streams: RandomStreams) -> RequestColumns:
    """The benchmark's requests."""
    seed = _seed(streams)
    input_len, output_len, token_ids = _lengths(config.num_prompts, Random(seed), keep_ids=config.exact_token_ids)
    return RequestColumns(
        request_id=np.arange(config.num_prompts),
        arrival_ns=_arrivals_ns(config, Random(seed + 1)),
        input_len=np.array(input_len, dtype=np.int64),
        output_len=np.array(output_len, dtype=np.int64),
        prompt_of=_explicit(token_ids) if config.exact_token_ids else own_prompt,
    )


def _seed(streams: RandomStreams) -> int:
    if streams.repeat == 0:
        return streams.seed
    return int(streams.generator("note_bench").integers(1 << 62))


def _lengths(size: int, draw: Random, *, keep_ids: bool) -> tuple[list[int], list[int], list[list[int]]]:
    """Lengths and token ids come from one generator in turn, so the ids are drawn even when nobody wants them."""
    input_len: list[int] = []
    output_len: list[int] = []
    token_ids: list[list[int]] = []
    for _ in range(size):
        input_len.append(draw.randint(_MIN_INPUT, _MAX_INPUT))
        output_len.append(draw.randint(_MIN_OUTPUT, _MAX_OUTPUT))
        ids = [draw.randrange(VOCAB_SIZE) for _ in range(input_len[-1])]
        if keep_ids:
            token_ids.append(ids)
    return input_len, output_len, token_ids


def _arrivals_ns(config: NoteBenchConfig, draw: Random) -> Ints:
    times = [0.0]
    for _ in range(config.num_prompts - 1):
        times.append(times[-1] + draw.expovariate(config.arrival.request_rate))
    return to_ns(np.array(times))


def _explicit(token_ids: list[list[int]]) -> PromptMaker:
    return lambda request_id, length: Prompt.of_token_ids(token_ids[request_id][:length])
