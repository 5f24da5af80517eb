"""Synthetic workloads, drawn from distributions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from twinserve.experiments.settings.schema import RequestCount
from twinserve.experiments.workloads.arrivals import ArrivalConfig, arrival_times_ns
from twinserve.experiments.workloads.conversations import Conversations, Sessions, SharedPrefix, prefix_segments, spans
from twinserve.experiments.workloads.lengths import LengthConfig, draw_lengths
from twinserve.experiments.workloads.options import RequestOptions
from twinserve.experiments.workloads.request_columns import RequestColumns, own_prompt
from twinserve.experiments.workloads.streams import RandomStreams
from twinserve.sched_core.plan import Ints


class SyntheticConfig(RequestOptions):
    """``num_prompts`` requests with lengths from ``input_len`` and ``output_len``.

    With ``sessions``, ``input_len`` is what each turn adds, ``arrival`` is when conversations begin, and
    ``num_prompts`` counts all turns. A ``shared_prefix`` comes on top of ``input_len``.
    """

    kind: Literal["synthetic"]
    num_prompts: RequestCount = 1000
    input_len: LengthConfig
    output_len: LengthConfig
    arrival: ArrivalConfig
    shared_prefix: SharedPrefix | None = None
    sessions: Sessions | None = None


def synthetic_rows(config: SyntheticConfig, streams: RandomStreams, base_dir: Path) -> RequestColumns:
    """The requests of ``config``, in order of request id (arrival of a follow-up is decided by the run)."""
    size = config.num_prompts
    input_len = draw_lengths(config.input_len, size, streams.generator("input_len"), base_dir, "workload.input_len")
    output_len = draw_lengths(config.output_len, size, streams.generator("output_len"), base_dir, "workload.output_len")
    if config.sessions is None and config.shared_prefix is None:
        return RequestColumns(
            request_id=np.arange(size),
            arrival_ns=arrival_times_ns(config.arrival, size, streams.generator("arrival")),
            input_len=input_len,
            output_len=output_len,
            prompt_of=own_prompt,
        )
    return _conversation_rows(config, streams, base_dir, input_len, output_len)


def _conversation_rows(
    config: SyntheticConfig, streams: RandomStreams, base_dir: Path, said: Ints, output_len: Ints
) -> RequestColumns:
    sessions = config.sessions
    ids = [range(request_id, request_id + 1) for request_id in range(len(said))]
    think_ns = np.zeros(len(said), dtype=np.int64)
    if sessions is not None:
        turns = draw_lengths(sessions.turns, len(said), streams.generator("turns"), base_dir, "workload.sessions.turns")
        ids, think_ns = spans(turns, len(said)), sessions.draw_think_ns(len(said), streams)
    # A later turn can only quote what an answer limited by max_output_len says.
    limit = config.max_output_len if config.over_length == "clip" else None
    answered = output_len if limit is None else np.minimum(output_len, limit)
    talk = Conversations()
    prefixes = prefix_segments(config.shared_prefix, len(ids), streams)
    for span, prefix in zip(ids, prefixes, strict=True):
        cut = slice(span.start, span.stop)
        talk.add(span, said[cut], answered[cut], think_ns[cut], prefix)
    starts = arrival_times_ns(config.arrival, len(ids), streams.generator("arrival"))
    rows = RequestColumns(
        request_id=np.arange(len(said)),
        arrival_ns=np.repeat(starts, [len(span) for span in ids]),
        input_len=np.array([len(talk.prompts[request_id]) for request_id in range(len(said))], dtype=np.int64),
        output_len=output_len,
        prompt_of=talk.prompt_maker(),
    )
    rows = replace(rows, follow_ups=talk.follow_ups, output_streams=talk.output_streams)
    return rows.with_notes(num_conversations=len(ids))
