"""The seams where a policy plugs in.

A policy decides; blocks, budgets and preemption belong to the mechanism.
None of these may look at a request's true output length: only ``max_tokens`` and ``predicted_output_len`` exist here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, overload

from twinserve.sched_core.config import SchedulerConfig
from twinserve.sched_core.events import Finished
from twinserve.sched_core.features import StepFeatures
from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.request import Request
from twinserve.sched_core.requests.waiting_queue import WaitingQueue
from twinserve.sched_core.running_table import RunningTable


class Rows(Enum):
    """Which running requests a composition asks for: those with exactly one token to compute, or with more."""

    ALL = "all"
    DECODES = "decodes"
    PREFILLS = "prefills"


class StepDraft(Protocol):
    """What a batch composition may do to the step that is being planned."""

    @property
    def is_empty(self) -> bool:
        """True while no tokens have been scheduled."""

    @property
    def num_running(self) -> int:
        """Requests in the batch now."""

    @property
    def batch_is_fresh(self) -> bool:
        """True while no running request has decoded (each has at most the token of its prefill)."""

    @property
    def num_waiting(self) -> int:
        """Requests in the queue now."""

    @property
    def num_decodes(self) -> int:
        """Running requests with exactly one token to compute, scheduled or not."""

    @property
    def budget(self) -> int:
        """Tokens that this step may still hold."""

    @property
    def config(self) -> SchedulerConfig: ...

    def run(self, rows: Rows, at_most: int | None = None) -> None:
        """Give running requests their next tokens, in order, within the budget; preempt when blocks run out.

        ``at_most`` caps the tokens that this call hands out. Not after requests were admitted (SchedulerError): they
        share blocks that this step computes, so none of those may be taken back.
        """

    def admit(self, at_most: int | None = None, *, split_first_only: bool = False) -> None:
        """Take waiting requests in order while budget, ``max_num_seqs`` and blocks allow.

        ``at_most`` caps the tokens that this call hands out; a longer prompt that must not be cut waits. With
        ``split_first_only`` a prompt is cut only when the step is still empty.
        """


class BatchComposition(Protocol):
    """What goes into a step, and in which order."""

    def compose(self, step: StepDraft) -> None: ...


class QueueOrder(Protocol):
    """Who is served first: a rank per request, smaller first; ties go to preempted requests, then to arrival.

    ``ranks_running`` applies the rank to running requests as well (multi-level queues). Hooks see confirmed facts
    only; ``on_time`` returns True when ranks have changed and the queue must be sorted again. ``wake_at`` names a
    time (ns) to be asked again even if nothing happens.
    """

    ranks_running: bool

    def rank(self, request: Request, now: int) -> tuple[float, ...]: ...
    def on_arrival(self, request: Request, now: int) -> None: ...
    def on_admit(self, request: Request, now: int) -> None: ...
    def on_tokens(self, request_ids: Ints, num_tokens: Ints, now: int) -> None: ...
    def on_finish(self, event: Finished, now: int) -> None: ...
    def on_time(self, now: int) -> bool: ...
    def wake_at(self, now: int) -> int | None: ...


class BatchState:
    """What a budget controller may know before a step is planned; computed only when asked."""

    __slots__ = ("_queue", "_table", "max_num_batched_tokens")

    def __init__(self, max_num_batched_tokens: int, table: RunningTable, queue: WaitingQueue) -> None:
        self.max_num_batched_tokens = max_num_batched_tokens
        self._table = table
        self._queue = queue

    @property
    def num_waiting(self) -> int:
        return len(self._queue)

    @property
    def num_running(self) -> int:
        return self._table.size

    @property
    def num_decodes(self) -> int:
        """Running requests with exactly one token to compute."""
        return int((self._table.remaining() == 1).sum())

    @property
    def decode_context(self) -> int:
        """Tokens that the decodes attend to, summed."""
        decodes = self._table.remaining() == 1
        return int(self._table.num_tokens[: self._table.size][decodes].sum())


class StepTimeEstimator(Protocol):
    """Predicts a step's duration; injected, so that the core needs no cost model."""

    def seconds(self, features: StepFeatures) -> float: ...


class TokenBudget(Protocol):
    """How many tokens the next step may hold: clipped to 1 and ``max_num_batched_tokens``.

    With chunked prefill off no prompt is cut to it: a longer one at the head of the queue waits until nothing else can
    run, then starts whole.
    """

    def tokens(self, state: BatchState, now: int) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A running request that may be preempted; ``num_computed`` tokens would have to be computed again."""

    request: Request
    num_computed: int
    num_tokens: int


class Candidates(Sequence[Candidate]):
    """Running requests in order of admission; a ``Candidate`` is made when one is looked at.

    ``requests[i]`` is the request in row ``rows[i]`` of ``table``.
    """

    __slots__ = ("_rows", "_table", "requests")

    def __init__(self, table: RunningTable, rows: Sequence[int]) -> None:
        self._table = table
        self._rows = rows
        self.requests = [table.requests[row] for row in rows]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, position: int) -> Candidate: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[Candidate]: ...
    def __getitem__(self, position: int | slice) -> Candidate | Sequence[Candidate]:
        if isinstance(position, slice):
            return Candidates(self._table, self._rows[position])
        row = self._rows[position]
        return Candidate(
            request=self.requests[position],
            num_computed=self._table.num_computed.item(row),
            num_tokens=self._table.num_tokens.item(row),
        )


class VictimChoice(Protocol):
    """Which running request gives up its blocks."""

    def choose(self, candidates: Sequence[Candidate]) -> int:
        """Position of the victim among ``candidates`` (in order of admission, at least one)."""


class AdmissionState(Protocol):
    """What an admission policy may know: the limits, the free blocks, and who is running."""

    @property
    def now(self) -> int: ...
    @property
    def config(self) -> SchedulerConfig: ...
    @property
    def num_free_blocks(self) -> int: ...
    def candidates(self) -> Sequence[Candidate]: ...


class AdmissionControl(Protocol):
    """A further condition on admission, asked when budget and blocks would allow it.

    With nothing running it must allow a request that fits, or name a time in ``wake_at``; otherwise the engine
    raises ``StuckError``.
    """

    def may_admit(self, request: Request, num_needed_blocks: int, state: AdmissionState) -> bool:
        """``num_needed_blocks`` of the free blocks are needed to admit ``request`` now."""

    def wake_at(self, now: int) -> int | None: ...
