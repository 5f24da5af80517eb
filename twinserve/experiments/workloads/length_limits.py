"""Length limits of requests: longer ones are clipped, dropped or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.workloads.options import RequestOptions
from twinserve.experiments.workloads.request_columns import RequestColumns
from twinserve.sched_core.plan import Ints

Mask: TypeAlias = NDArray[np.bool_]


def apply_limits(rows: RequestColumns, options: RequestOptions) -> RequestColumns:
    """``max_input_len`` and ``max_output_len`` by the rule ``over_length``; the counts go into ``info``.

    Raises:
        ConfigError: a request is too long and the rule is ``error``.
    """
    long_input, long_output = (
        _over(rows.input_len, options.max_input_len),
        _over(rows.output_len, options.max_output_len),
    )
    if options.over_length == "clip":
        return _clip(rows, options, int(long_input.sum()), int(long_output.sum()))
    if options.over_length == "error":
        _refuse(rows, long_input, "prompt", "max_input_len")
        _refuse(rows, long_output, "output", "max_output_len")
        return rows
    return _drop(rows, long_input | long_output)


def _over(lengths: Ints, limit: int | None) -> Mask:
    return np.zeros(len(lengths), dtype=bool) if limit is None else lengths > limit


def _clip(rows: RequestColumns, options: RequestOptions, num_inputs: int, num_outputs: int) -> RequestColumns:
    input_len, output_len = rows.input_len, rows.output_len
    if options.max_input_len is not None:
        input_len = np.minimum(input_len, options.max_input_len)
    if options.max_output_len is not None:
        output_len = np.minimum(output_len, options.max_output_len)
    clipped = replace(rows, input_len=input_len, output_len=output_len)
    cut = [
        key for key, count in (("max_input_len", num_inputs), ("max_output_len", num_outputs)) if count == len(rows) > 0
    ]
    warnings = [f"all {len(rows)} requests are cut to workload.{key}={getattr(options, key)}; raise it" for key in cut]
    return clipped.with_notes(*warnings, num_clipped_inputs=num_inputs, num_clipped_outputs=num_outputs)


def _drop(rows: RequestColumns, too_long: Mask) -> RequestColumns:
    gone = set(rows.request_id[too_long].tolist())
    # A turn has a larger id than the one it follows, so one pass ends every conversation at its first dropped turn.
    for request_id, turn in sorted(rows.follow_ups.items()):
        if turn.after in gone:
            gone.add(request_id)
    kept = rows.take(np.array([request_id not in gone for request_id in rows.request_id.tolist()], dtype=bool))
    return kept.with_notes(num_dropped_over_length=len(rows) - len(kept))


def _refuse(rows: RequestColumns, too_long: Mask, what: str, key: str) -> None:
    if too_long.any():
        request_id = rows.request_id[int(too_long.argmax())]
        problem = f"request {request_id} has a longer {what}; raise the limit or set over_length to clip or drop"
        raise ConfigError(problem, key=f"workload.{key}")
