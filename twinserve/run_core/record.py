"""What a run leaves behind: columns of requests, steps and tokens, the same for both backends.

Nothing here is kept per row or step as an object: a step adds its numbers to one flat list, and a reference to an
array that its events own anyway.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from twinserve.sched_core.events import Event, Finished, RefusalReason, TokensSampled
from twinserve.sched_core.features import StepFeatures
from twinserve.sched_core.plan import Ints, StepPlan
from twinserve.sched_core.requests.spec import RequestSpec

Column: TypeAlias = Sequence[Any] | np.ndarray[Any, Any]
Columns: TypeAlias = dict[str, Column]

STEP_COLUMNS = (
    "step_id",
    "start_ns",
    "end_ns",
    "device_ns",
    *StepFeatures._fields,
    "num_preempted",
    "num_waiting",
    "num_running",
    "num_free_blocks",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """All that was recorded of a run; times are integer nanoseconds since its start.

    ``requests`` has one row per request in order of sending: request_id, client, priority, prompt_len, max_tokens,
    arrival_ns (scheduled), sent_ns, first_scheduled_ns, first_token_ns, last_token_ns, finish_ns, output_len,
    num_cached_tokens (prefix hits at first admission), num_preemptions, finish_reason, refusal, refusal_detail; what
    never happened is None. ``steps`` has STEP_COLUMNS; ``device_ns`` is None where no device was timed. ``tokens``
    has one row per delivered token in order of delivery: request_id, time_ns and, from a real model, token_id.
    ``plans`` is the decision log. ``stats`` are the engine's counters.
    """

    requests: Columns
    steps: Columns
    tokens: Columns
    plans: tuple[StepPlan, ...]
    stats: Mapping[str, int]
    end_ns: int


@dataclass(slots=True)
class _Life:
    spec: RequestSpec
    sent_ns: int
    first_scheduled_ns: int | None = None
    num_cached_tokens: int | None = None
    num_preemptions: int = 0
    finish_ns: int | None = None
    finish_reason: str | None = None
    refusal: str | None = None
    refusal_detail: str | None = None
    # Of the tokens that the record does not hold one by one:
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    num_tokens: int = 0

    def ended_before(self, time_ns: int) -> bool:
        return self.finish_ns is not None and self.finish_ns < time_ns


@dataclass(slots=True)
class Recorder:
    """Collects a run. ``keep_plans`` keeps the decision log (needed for parity; costs memory).

    With ``window_ns`` only the last part of a run is kept, at least that long and at most about twice as long: steps
    and tokens since then, and the requests that had not ended before. Their figures stay whole.
    """

    keep_plans: bool = False
    window_ns: int | None = None
    _lives: dict[int, _Life] = field(default_factory=dict)
    _refused: list[_Life] = field(default_factory=list)
    _steps: list[Any] = field(default_factory=list)  # STEP_COLUMNS of each step, one after the other
    _plans: list[StepPlan] = field(default_factory=list)
    _token_requests: list[Ints] = field(default_factory=list)
    _token_ids: list[Ints] = field(default_factory=list)
    _token_times: list[int] = field(default_factory=list)
    _kept_since: int = 0

    def sent(self, spec: RequestSpec, now: int) -> None:
        """``spec`` was accepted by the engine at ``now``."""
        self._lives[spec.request_id] = _Life(spec, now)

    def refused(self, spec: RequestSpec, now: int, reason: RefusalReason, detail: str) -> None:
        self._refused.append(_Life(spec, now, finish_ns=now, refusal=str(reason), refusal_detail=detail))

    def step(
        self,
        plan: StepPlan,
        features: StepFeatures,
        start_ns: int,
        end_ns: int,
        device_ns: int | None = None,
    ) -> None:
        """A step ran from ``start_ns`` to ``end_ns``; ``device_ns`` is the measured span on the device, if any."""
        self._steps += (plan.step_id, start_ns, end_ns, device_ns)
        self._steps += features
        self._steps += (len(plan.preempted), plan.num_waiting, plan.num_running, plan.num_free_blocks)
        if self.keep_plans:
            self._plans.append(plan)
        for started in plan.started:
            life = self._lives[started.spec.request_id]
            if life.first_scheduled_ns is None:
                life.first_scheduled_ns = start_ns
                life.num_cached_tokens = started.num_cached_tokens
        for request_id in plan.preempted:
            self._lives[request_id].num_preemptions += 1
        if self.window_ns is not None and end_ns - self._kept_since > 2 * self.window_ns:
            self._forget_before(end_ns - self.window_ns)

    def events(self, events: Iterable[Event], now: int) -> None:
        """Events of ``finish_step`` (or of an abort), delivered at ``now``."""
        for event in events:
            if isinstance(event, TokensSampled):
                self._token_requests.append(event.request_ids)
                self._token_times.append(now)
                if event.token_ids is not None:
                    self._token_ids.append(event.token_ids)
            elif isinstance(event, Finished):
                life = self._lives[event.request_id]
                life.finish_ns = now
                life.finish_reason = str(event.reason)

    def _forget_before(self, time_ns: int) -> None:
        self._kept_since = time_ns
        width, end_column = len(STEP_COLUMNS), STEP_COLUMNS.index("end_ns")
        num_steps = bisect_left(self._steps[end_column::width], time_ns)
        del self._steps[: num_steps * width], self._plans[:num_steps]
        num_batches = bisect_left(self._token_times, time_ns)
        for request_ids, time in zip(self._token_requests[:num_batches], self._token_times, strict=False):
            for request_id in request_ids.tolist():
                life = self._lives[request_id]
                life.num_tokens += 1
                life.last_token_ns = time
                if life.first_token_ns is None:
                    life.first_token_ns = time
        del self._token_requests[:num_batches], self._token_ids[:num_batches], self._token_times[:num_batches]
        self._lives = {key: life for key, life in self._lives.items() if not life.ended_before(time_ns)}
        self._refused = [life for life in self._refused if not life.ended_before(time_ns)]

    def finish(self, end_ns: int, stats: Mapping[str, int]) -> RunRecord:
        """What was collected, once: the tokens move into the record, so that they are not in memory twice."""
        tokens = self._token_columns()
        return RunRecord(
            requests=self._request_columns(tokens),
            steps=self._step_columns(),
            tokens=tokens,
            plans=tuple(self._plans),
            stats=stats,
            end_ns=end_ns,
        )

    def _token_columns(self) -> Columns:
        counts = [len(ids) for ids in self._token_requests]
        columns: Columns = {
            "request_id": _moved(self._token_requests),
            "time_ns": np.repeat(np.array(self._token_times, dtype=np.int64), counts),
        }
        if self._token_ids:
            columns["token_id"] = _moved(self._token_ids)
        return columns

    def _step_columns(self) -> Columns:
        width = len(STEP_COLUMNS)
        return {name: tuple(self._steps[place::width]) for place, name in enumerate(STEP_COLUMNS)}

    def _request_columns(self, tokens: Columns) -> Columns:
        first, last, count = _spans(tokens, sorted(self._lives))
        lives = sorted([*self._lives.values(), *self._refused], key=lambda life: life.sent_ns)
        ids = [life.spec.request_id for life in lives]
        pairs = list(zip(lives, ids, strict=True))
        return {
            "request_id": ids,
            "client": [life.spec.client for life in lives],
            "priority": [life.spec.priority for life in lives],
            "prompt_len": [life.spec.num_prompt_tokens for life in lives],
            "max_tokens": [life.spec.max_tokens for life in lives],
            "arrival_ns": [life.spec.arrival_ns for life in lives],
            "sent_ns": [life.sent_ns for life in lives],
            "first_scheduled_ns": [life.first_scheduled_ns for life in lives],
            "first_token_ns": [
                first.get(i) if life.first_token_ns is None else life.first_token_ns for life, i in pairs
            ],
            "last_token_ns": [last.get(i, life.last_token_ns) for life, i in pairs],
            "finish_ns": [life.finish_ns for life in lives],
            "output_len": [life.num_tokens + count.get(i, 0) for life, i in pairs],
            "num_cached_tokens": [life.num_cached_tokens for life in lives],
            "num_preemptions": [life.num_preemptions for life in lives],
            "finish_reason": [life.finish_reason for life in lives],
            "refusal": [life.refusal for life in lives],
            "refusal_detail": [life.refusal_detail for life in lives],
        }


def _moved(arrays: list[Ints]) -> Ints:
    """All arrays as one; the list is empty afterwards."""
    whole = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
    arrays.clear()
    return whole


def _spans(tokens: Columns, known: Sequence[int]) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """First time, last time and number of the tokens of each request that had any.

    ``known`` are the ids of all requests, ascending; ``tokens`` are in order of delivery.
    """
    ids, times = np.asarray(tokens["request_id"]), np.asarray(tokens["time_ns"])
    names = np.array(known, dtype=np.int64)
    numbered = bool((names == np.arange(len(names))).all())
    places = ids if numbered else np.searchsorted(names, ids)
    first, last = np.zeros(len(names), dtype=np.int64), np.zeros(len(names), dtype=np.int64)
    first[places[::-1]] = times[::-1]  # of several values for one place the last one stays
    last[places] = times
    count = np.bincount(places, minlength=len(names))
    kept = count > 0
    first_of, last_of, count_of = (
        dict(zip(names[kept].tolist(), column[kept].tolist(), strict=True)) for column in (first, last, count)
    )
    return first_of, last_of, count_of
