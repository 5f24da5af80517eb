"""Trace workloads, read from a file."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.schema import PositiveFloat, PositiveInt, Seconds, Section
from twinserve.experiments.workloads.arrivals import MAX_SECONDS, NS_PER_S, ArrivalConfig, arrival_times_ns
from twinserve.experiments.workloads.fields import require_file
from twinserve.experiments.workloads.formats import csv_traces, json_traces
from twinserve.experiments.workloads.formats.trace_table import Table
from twinserve.experiments.workloads.length_limits import apply_limits
from twinserve.experiments.workloads.lengths import LengthConfig, draw_lengths
from twinserve.experiments.workloads.options import RequestOptions
from twinserve.experiments.workloads.request_columns import (
    RequestColumns,
    hashed_prompts,
    own_prompt,
    written_prompts,
)
from twinserve.experiments.workloads.streams import RandomStreams
from twinserve.sched_core.plan import Ints

TraceFormat = Literal["azure", "mooncake", "burstgpt", "vidur", "lengths", "llmservingsim", "timed_trace"]
TimeUnit = Literal["s", "ms", "us", "ns"]


class TimedTraceOptions(Section):
    """How a ``timed_trace`` is written: its keys, the unit of its times and the tokens that a hash id stands for."""

    timestamp: str = "timestamp"
    input_length: str = "input_length"
    output_length: str = "output_length"
    hash_ids: str = "hash_ids"
    time_unit: TimeUnit = "ms"
    hash_block_size: PositiveInt = 16


class TraceConfig(RequestOptions):
    """Requests of the trace file ``path``; times count from its earliest row.

    Taken are rows from ``start_s`` for ``duration_s`` seconds of the trace, of these the first ``num_prompts``.
    ``time_scale`` multiplies times (0.5 is twice the load), ``prompt_scale`` and ``output_scale`` lengths. ``jitter_s``
    spreads rows with the same time over that many seconds, in file order. ``arrival`` replaces the trace's times and
    is needed where it has none; ``output_len`` draws outputs in place of the trace's, which may then lack them. Rows
    without output are an error or, with ``zero_output: drop``, left out.
    """

    kind: Literal["trace"]
    format: TraceFormat
    path: str
    timed_trace: TimedTraceOptions | None = None
    arrival: ArrivalConfig | None = None
    num_prompts: PositiveInt | None = None
    start_s: Seconds = 0.0
    duration_s: Annotated[Seconds, Field(gt=0)] | None = None
    time_scale: PositiveFloat = 1.0
    prompt_scale: Annotated[PositiveFloat, Field(le=1e6)] = 1.0
    output_scale: Annotated[PositiveFloat, Field(le=1e6)] = 1.0
    jitter_s: Seconds = 0.0
    zero_output: Literal["error", "drop"] = "error"
    output_len: LengthConfig | None = None

    @model_validator(mode="after")
    def _options_go_with_the_format(self) -> Self:
        if self.timed_trace is not None and self.format != "timed_trace":
            raise ValueError("timed_trace options go with format: timed_trace")
        if self.format == "lengths" and self.arrival is None:
            raise ValueError("format lengths has no times; add workload.arrival, for example {process: poisson, ...}")
        if self.format == "lengths" and (self.start_s or self.duration_s or self.jitter_s):
            raise ValueError(
                "format lengths has no times, so start_s, duration_s and jitter_s mean nothing; use arrival"
            )
        return self


def read_table(config: TraceConfig, path: Path) -> Table:
    """The rows of the trace as they stand in the file."""
    replaced = config.arrival is not None and not (config.start_s or config.duration_s or config.jitter_s)
    needs = json_traces.Needs(times=not replaced, outputs=config.output_len is None)
    if config.format == "timed_trace":
        return _read_timed(config.timed_trace or TimedTraceOptions(), path, needs)
    if config.format == "mooncake":
        return json_traces.read_mooncake(path, needs)
    if config.format == "llmservingsim":
        is_json = ".jsonl" in path.suffixes
        return json_traces.read_llmservingsim_json(path, needs) if is_json else csv_traces.read_llmservingsim_csv(path)
    readers = {
        "azure": csv_traces.read_azure,
        "burstgpt": csv_traces.read_burstgpt,
        "vidur": csv_traces.read_vidur,
        "lengths": csv_traces.read_lengths,
    }
    return readers[config.format](path)


def trace_rows(config: TraceConfig, streams: RandomStreams, base_dir: Path) -> RequestColumns:
    """The requests that ``config`` takes from its trace; a request's id is its row, counted from 0.

    Raises:
        ConfigError: no such file, or one that cannot be used as it is.
    """
    table = read_table(config, require_file(config.path, base_dir, "workload.path"))
    if config.output_len is not None:
        generator, key = streams.generator("output_len"), "workload.output_len"
        drawn = draw_lengths(config.output_len, len(table.input_len), generator, base_dir, key)
        table = replace(table, output_len=drawn)
    rows = _keep_real_outputs(_sorted_rows(table, config), table, config)
    rows = _rescale(_window(rows, config), config)
    rows = apply_limits(rows, config)
    if config.num_prompts is not None:
        rows = _first(rows, config.num_prompts)
    return _retimed(rows, config, streams)


def _read_timed(options: TimedTraceOptions, path: Path, needs: json_traces.Needs) -> Table:
    labels = json_traces.Labels(
        timestamp=options.timestamp,
        input_length=options.input_length,
        output_length=options.output_length,
        hash_ids=options.hash_ids,
    )
    unit_ns = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}[options.time_unit]
    return json_traces.read_timed(path, labels, needs, unit_ns=unit_ns, hash_block_size=options.hash_block_size)


def _sorted_rows(table: Table, config: TraceConfig) -> RequestColumns:
    """The rows by time, ties in file order."""
    table.refuse(table.input_len == 0, "the prompt has 0 tokens; remove the row")
    num_rows = len(table.input_len)
    time_ns = np.zeros(num_rows, dtype=np.int64) if table.time_ns is None else table.time_ns
    order = np.argsort(time_ns, kind="stable")
    rows = RequestColumns(
        request_id=order,
        arrival_ns=time_ns[order],
        input_len=table.input_len[order],
        output_len=table.output_len[order],
        prompt_of=own_prompt,
        info={"num_trace_rows": num_rows},
    )
    if table.hash_ids is not None:
        # Rounded up, so that the scaled blocks still cover the scaled prompt.
        block_size = ceil(table.hash_block_size * config.prompt_scale)
        rows = replace(rows, prompt_of=hashed_prompts(table.hash_ids, block_size))
    elif table.token_ids is not None:
        rows = replace(rows, prompt_of=written_prompts(table.token_ids))
    if unused := unused_keys(table):
        rows = rows.with_notes(
            f"{table.path}: not used: {', '.join(unused)}; prompts share only what hash_ids or token ids say, and no "
            f"request waits for another (a timed_trace may name its hash_ids)"
        )
    misplaced = np.flatnonzero(np.diff(time_ns) < 0)
    if not len(misplaced):
        return rows
    line = table.lines[int(misplaced[0]) + 1]
    return rows.with_notes(f"{table.path}: {len(misplaced)} rows are out of order (first: line {line}); sorted by time")


def unused_keys(table: Table) -> tuple[str, ...]:
    """What the trace says about shared content or sessions, and nothing here uses."""
    both = table.hash_ids is not None and table.token_ids is not None
    return (*table.unused, *(("token ids (hash_ids are used)",) if both else ()))


def _keep_real_outputs(rows: RequestColumns, table: Table, config: TraceConfig) -> RequestColumns:
    empty = table.output_len == 0
    if config.zero_output == "error":
        table.refuse(empty, "the output has 0 tokens; remove the row or set workload.zero_output to drop")
        return rows
    return rows.take(rows.output_len > 0).with_notes(num_dropped_zero_output=int(empty.sum()))


def _window(rows: RequestColumns, config: TraceConfig) -> RequestColumns:
    start = config.start_s * NS_PER_S
    end = np.inf if config.duration_s is None else start + config.duration_s * NS_PER_S
    kept = rows.take((rows.arrival_ns >= start) & (rows.arrival_ns < end))
    return replace(kept, arrival_ns=kept.arrival_ns - round(start))


def _rescale(rows: RequestColumns, config: TraceConfig) -> RequestColumns:
    scaled_ns = rows.arrival_ns * config.time_scale
    if len(rows) and scaled_ns.max() > MAX_SECONDS * NS_PER_S:
        raise ConfigError("stretches the trace over more than 285 years; lower it", key="workload.time_scale")
    return replace(
        rows,
        arrival_ns=np.rint(scaled_ns).astype(np.int64),
        input_len=_scaled(rows.input_len, config.prompt_scale),
        output_len=_scaled(rows.output_len, config.output_scale),
    )


def _scaled(lengths: Ints, scale: float) -> Ints:
    scaled: Ints = np.maximum(np.rint(lengths * scale), 1).astype(np.int64)
    return scaled


def _first(rows: RequestColumns, num_prompts: int) -> RequestColumns:
    if num_prompts <= len(rows):
        return rows.take(np.arange(num_prompts))
    return rows.with_notes(f"workload.num_prompts is {num_prompts}, but the trace has only {len(rows)} such rows")


def _retimed(rows: RequestColumns, config: TraceConfig, streams: RandomStreams) -> RequestColumns:
    if not len(rows):
        raise ConfigError(
            "no row is left; widen start_s, duration_s or the limits, or take another trace", key="workload"
        )
    if config.arrival is not None:
        times = arrival_times_ns(config.arrival, len(rows), streams.generator("arrival"))
        return replace(rows, arrival_ns=times)
    if not config.jitter_s:
        return rows
    jittered = replace(rows, arrival_ns=_spread_ties(rows.arrival_ns, config.jitter_s, streams.generator("jitter")))
    return jittered.take(np.argsort(jittered.arrival_ns, kind="stable"))


def _spread_ties(arrival_ns: Ints, jitter_s: float, generator: np.random.Generator) -> Ints:
    """Uniform offsets in ``[0, jitter_s)`` for rows that share their time, ascending within each tie."""
    _, group, sizes = np.unique(arrival_ns, return_inverse=True, return_counts=True)
    offsets = generator.random(len(arrival_ns)) * jitter_s * NS_PER_S
    ascending = offsets[np.lexsort((offsets, group))]
    tied = np.where(sizes[group] > 1, ascending, 0.0)
    return arrival_ns + tied.astype(np.int64)
