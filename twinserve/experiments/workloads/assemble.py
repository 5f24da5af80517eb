"""Makes a ``Workload`` of requests from columns and the user's options."""

from __future__ import annotations

from math import log1p, sqrt

import numpy as np

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.workloads.arrivals import NS_PER_S
from twinserve.experiments.workloads.options import ClientClass, RequestOptions
from twinserve.experiments.workloads.request_columns import RequestColumns
from twinserve.experiments.workloads.streams import RandomStreams, weighted_choice
from twinserve.experiments.workloads.workload import Workload
from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.spec import RequestSpec, SamplingParams


def assemble(rows: RequestColumns, options: RequestOptions, streams: RandomStreams, max_model_len: int) -> Workload:
    """The workload of ``rows``.

    Raises:
        ConfigError: no request is left.
    """
    if not len(rows):
        raise ConfigError("no request is left; widen the window or the limits", key="workload")
    max_tokens = _max_tokens(rows, options, max_model_len)
    ids = rows.request_id.tolist()
    answers = zip(ids, rows.output_len.tolist(), max_tokens.tolist(), strict=True)
    rows = _warn_of_misfits(rows, max_model_len)
    return Workload(
        requests=_requests(rows, max_tokens, options, streams),
        output_lens={request_id: true for request_id, true, limit in answers if true < limit},
        follow_ups={request_id: rows.follow_ups[request_id] for request_id in ids if request_id in rows.follow_ups},
        abort_after_ns=_aborts(ids, options, streams),
        max_concurrency=options.max_concurrency,
        warnings=rows.warnings,
        info={"num_requests": len(rows), "max_tokens": options.max_tokens, **rows.info},
    )


def _requests(
    rows: RequestColumns, max_tokens: Ints, options: RequestOptions, streams: RandomStreams
) -> tuple[RequestSpec, ...]:
    # Lengths are scripted or equal max_tokens, so no model may end a request early.
    sampling = SamplingParams(ignore_eos=True)
    predicted = _predictions(rows.output_len, options, streams)
    classes = _classes(rows, options, streams)
    clients = rows.clients or [""] * len(rows)
    columns = (rows.request_id, rows.arrival_ns, rows.input_len, max_tokens)
    return tuple(
        RequestSpec(
            request_id=request_id,
            prompt=rows.prompt_of(request_id, input_len),
            max_tokens=limit,
            arrival_ns=arrival_ns,
            priority=chosen.priority,
            client=chosen.client or client,
            cache_salt=chosen.cache_salt,
            predicted_output_len=prediction,
            output_stream=rows.output_streams.get(request_id),
            sampling=sampling,
        )
        for request_id, arrival_ns, input_len, limit, prediction, chosen, client in zip(
            *(column.tolist() for column in columns), predicted, classes, clients, strict=True
        )
    )


def _max_tokens(rows: RequestColumns, options: RequestOptions, max_model_len: int) -> Ints:
    if options.max_tokens == "fixed":
        return np.full(len(rows), options.max_tokens_value, dtype=np.int64)
    if options.max_tokens == "max_model_len":
        return np.maximum(max_model_len - rows.input_len, 1)
    return rows.output_len


def _predictions(output_len: Ints, options: RequestOptions, streams: RandomStreams) -> list[int | None]:
    if options.predicted_output_len == "none":
        return [None] * len(output_len)
    if options.predicted_output_cv is None:
        return list(output_len.tolist())
    variance = log1p(options.predicted_output_cv**2)
    noise = streams.generator("predicted_output_len").lognormal(-variance / 2, sqrt(variance), len(output_len))
    return [round(length) for length in np.maximum(output_len * noise, 1).tolist()]


def _classes(rows: RequestColumns, options: RequestOptions, streams: RandomStreams) -> list[ClientClass]:
    if not options.classes:
        return [ClientClass()] * len(rows)
    weights = np.array([one.weight for one in options.classes])
    drawn = weighted_choice(weights, len(rows), streams.generator("client")).tolist()
    chosen = {request_id: options.classes[at] for request_id, at in zip(rows.request_id.tolist(), drawn, strict=True)}
    for request_id, turn in sorted(rows.follow_ups.items()):
        if request_id in chosen:  # all turns of a conversation are one client's
            chosen[request_id] = chosen[turn.after]
    return list(chosen.values())


def _aborts(request_ids: list[int], options: RequestOptions, streams: RandomStreams) -> dict[int, int]:
    if options.abort is None:
        return {}
    gives_up = streams.generator("abort").random(len(request_ids)) < options.abort.probability
    after_ns = round(options.abort.after_s * NS_PER_S)
    return {request_id: after_ns for request_id, gone in zip(request_ids, gives_up.tolist(), strict=True) if gone}


def _warn_of_misfits(rows: RequestColumns, max_model_len: int) -> RequestColumns:
    misfits = int((rows.input_len + rows.output_len > max_model_len).sum())
    if not misfits:
        return rows
    return rows.with_notes(
        f"{misfits} of {len(rows)} requests need more than max_model_len={max_model_len} tokens and will be refused or "
        "cut short; raise engine.max_model_len or set workload.max_input_len and workload.max_output_len"
    )
