"""Negative controls: replays with one change, whose decisions must differ from the recorded ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from twinserve.experiments.validation.decisions import decision_columns, first_difference
from twinserve.experiments.validation.parity import Intervals, recorded_intervals, replay
from twinserve.experiments.validation.recorded import RecordedRun
from twinserve.experiments.workloads import Workload
from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.record import Columns
from twinserve.run_core.traffic import quote
from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.prompt import Segment
from twinserve.sched_core.requests.spec import RequestSpec

MILLISECOND = 1_000_000
Outcome: TypeAlias = Literal["differs", "stays equal", "not applicable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """``detail`` says what was changed and where the decisions part, or why there is nothing to change."""

    name: str
    outcome: Outcome
    detail: str


def run_controls(run: RecordedRun, log: Columns) -> tuple[Control, ...]:
    """The three controls on ``run``, compared with its decision ``log``."""
    return (longer_interval(run, log), smaller_pool(run, log), changed_id(run, log))


def longer_interval(run: RecordedRun, log: Columns) -> Control:
    """One interval 1 ms longer, where that lets a request in one step earlier."""
    name = "one interval 1 ms longer across an arrival"
    step = step_before_an_arrival(run)
    if step is None:
        reason = "no request arrived within 1 ms after a step's end to be scheduled where there was room before"
        return Control(name=name, outcome="not applicable", detail=reason)
    change = replay(run, intervals=_lengthened(recorded_intervals(run), step))
    return _judged(name, f"step {step} lengthened", change, log)


def smaller_pool(run: RecordedRun, log: Columns) -> Control:
    """One block fewer than the run ever used at once; one block fewer in all when the pool was full."""
    name = "one KV block fewer than the run needed"
    blocks = run.num_blocks - int(np.min(np.asarray(run.record.steps["num_free_blocks"]))) - 1
    if blocks < 1:
        return Control(name=name, outcome="not applicable", detail="the run needed one block only")
    return _judged(name, f"{blocks} blocks in place of {run.num_blocks}", replay(run, num_blocks=blocks), log)


def changed_id(run: RecordedRun, log: Columns) -> Control:
    """One sampled id changed that a later turn of the conversation, as it was really sent, found in the cache."""
    name = "one sampled id changed in a cached prefix"
    request_id = first_quoted_from_cache(run)
    if request_id is None:
        reason = "no request found another one's sampled tokens in the prefix cache"
        return Control(name=name, outcome="not applicable", detail=reason)
    owners = np.asarray(run.record.tokens["request_id"])
    token_ids = np.array(run.record.tokens["token_id"], dtype=np.int64)
    token_ids[np.flatnonzero(owners == request_id)[0]] ^= 1
    change = replay(run, token_ids=token_ids, workload=as_sent(run))
    return _judged(name, f"first sampled id of request {request_id} changed", change, log)


def step_before_an_arrival(run: RecordedRun) -> int | None:
    """A step that ends less than 1 ms before a request arrives that the next step had room for."""
    requests, steps = run.record.requests, run.record.steps
    columns = (requests[name] for name in ("arrival_ns", "sent_ns", "first_scheduled_ns"))
    at_once = sorted(arrival for arrival, sent, begun in zip(*columns, strict=True) if sent == begun)
    arrivals, ends = np.array(at_once, dtype=np.int64), np.asarray(steps["end_ns"])[:-1]
    next_index = np.searchsorted(arrivals, ends, side="right")
    near = np.append(arrivals, np.iinfo(np.int64).max)[next_index] - ends <= MILLISECOND
    steps_found = np.flatnonzero(near & _has_room(run)[1:])
    return int(steps_found[0]) if len(steps_found) else None


def _has_room(run: RecordedRun) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Steps that began at once after the one before, and would have taken another request."""
    steps = {name: np.asarray(run.record.steps[name]) for name in run.record.steps if name != "graph_mode"}
    engine = run.config.engine
    at_once = steps["start_ns"] == np.append(0, steps["end_ns"][:-1])
    room = (steps["num_tokens"] < engine.max_num_batched_tokens) & (steps["num_running"] < engine.max_num_seqs)
    has_room: np.ndarray[tuple[int], np.dtype[np.bool_]] = at_once & room & (steps["num_waiting"] == 0)
    return has_room


def first_quoted_from_cache(run: RecordedRun) -> int | None:
    """A request whose sampled ids its follow-up found in the prefix cache."""
    if "token_id" not in run.record.tokens:
        return None
    requests = run.record.requests
    cached = dict(zip(requests["request_id"], requests["num_cached_tokens"], strict=True))
    recorded = set(np.asarray(run.record.tokens["request_id"]).tolist())
    specs = {spec.request_id: spec for spec in run.workload.requests}
    for request_id, turn in sorted(run.workload.follow_ups.items()):
        start = _answer_start(specs[request_id], specs[turn.after])
        if start is not None and turn.after in recorded and (cached.get(request_id) or 0) > start:
            return turn.after
    return None


def as_sent(run: RecordedRun) -> Workload:
    """The workload with every later turn quoting the ids that were recorded, whatever a replay samples."""
    specs = {spec.request_id: spec for spec in run.workload.requests}
    answers = _answers(run)
    for request_id, turn in run.workload.follow_ups.items():
        answered, spec = specs[turn.after], specs[request_id]
        specs[request_id] = replace(spec, prompt=quote(spec.prompt, answered, answers.get(turn.after, ())))
    return replace(run.workload, requests=tuple(specs.values()))


def _answers(run: RecordedRun) -> dict[int, tuple[int, ...]]:
    tokens = run.record.tokens
    owners, ids = np.asarray(tokens["request_id"]), np.asarray(tokens["token_id"])
    order = np.argsort(owners, kind="stable")
    request_ids, starts = np.unique(owners[order], return_index=True)
    parts: list[Ints] = np.split(ids[order], starts[1:])
    return {int(request_id): tuple(part.tolist()) for request_id, part in zip(request_ids, parts, strict=True)}


def _answer_start(turn: RequestSpec, answered: RequestSpec) -> int | None:
    """Where ``turn``'s prompt begins to quote the answer; None when it does not."""
    start = 0
    for piece in turn.prompt.pieces:
        if isinstance(piece, Segment) and piece.stream == answered.output_stream:
            return start
        start += piece.length
    return None


def _lengthened(intervals: Intervals, step: int) -> Intervals:
    """Step ``step`` ends 1 ms later, and everything after it happens 1 ms later."""
    start, end = intervals[step]
    later = [(begin + MILLISECOND, finish + MILLISECOND) for begin, finish in intervals[step + 1 :]]
    return [*intervals[:step], (start, end + MILLISECOND), *later]


def _judged(name: str, change: str, replayed: RunOutcome, log: Columns) -> Control:
    difference = first_difference(log, decision_columns(replayed.record.plans))
    if difference is None and replayed.error is None:
        return Control(name=name, outcome="stays equal", detail=change)
    where = f"differs from step {difference.step}" if difference is not None else str(replayed.error)
    return Control(name=name, outcome="differs", detail=f"{change}: {where}")
