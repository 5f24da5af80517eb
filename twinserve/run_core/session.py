"""``Session``: one run of an engine, and all that both drivers do at a step boundary.

A driver repeats ``begin(now)``, run the plan, ``finish(plan, token_ids, now)``, and at the end asks for the
``outcome``. It decides when; what happens at a boundary, and in which order, is written here once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from typing import TypeAlias

from twinserve.run_core.outcome import RunOutcome
from twinserve.run_core.output_script import OutputScript
from twinserve.run_core.record import Recorder
from twinserve.run_core.source import RequestSource
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes
from twinserve.sched_core.engine import EngineCore
from twinserve.sched_core.events import Event, Finished, TokensSampled
from twinserve.sched_core.features import StepFeatures, step_features
from twinserve.sched_core.invariants import Checker
from twinserve.sched_core.plan import Idle, Ints, StepPlan, StepResult
from twinserve.sched_core.requests.spec import RequestSpec

_MADE_UP = StepResult()
"""What most simulated steps report: made-up tokens, and no end that the stop rules do not know of."""

EventListener: TypeAlias = Callable[[tuple[Event, ...]], None]
ProgressListener: TypeAlias = Callable[[int], None]
_Step: TypeAlias = tuple[StepPlan, int, int | None]
"""A plan, when it began, and its span on the device; it ended with the events that it stands beside."""


def ignore(*_: object) -> None:
    """A listener that does nothing."""


class Session:
    """An engine, where its requests come from, and what is recorded of them.

    ``output_lens`` gives, per request id, the output length at which the backend ends the request. ``check`` verifies
    the engine's invariants at every step. ``on_events`` sees every batch of events, ``on_progress`` the number of
    requests that have ended; both hear of them with ``flush``. The driver may set ``on_accepted`` (every request that
    the engine takes), ``on_ended`` (ids that need no memory any more) and ``on_change`` (the source has something
    new), which are called at once.
    """

    def __init__(
        self,
        engine: EngineCore,
        source: RequestSource,
        recorder: Recorder | None = None,
        *,
        capture_sizes: CaptureSizes = NO_GRAPHS,
        output_lens: Mapping[int, int] | None = None,
        check: bool = False,
        on_events: EventListener | None = None,
        on_progress: ProgressListener | None = None,
    ) -> None:
        self.engine = engine
        self.capture_sizes = capture_sizes
        self.on_accepted: Callable[[RequestSpec], None] = ignore
        self.on_ended: Callable[[Iterable[int]], None] = ignore
        self.on_change: Callable[[], None] = ignore
        self.now = 0
        self.is_over = False
        self._source = source
        self._recorder = Recorder() if recorder is None else recorder
        self._script = OutputScript(output_lens) if output_lens else None
        self._checker = Checker(engine) if check else None
        self._on_events = on_events
        self._on_progress = on_progress
        self._num_ended = self._num_reported = 0
        self._changed = True
        self._next_event: int | None = None
        self._is_interrupted = False
        self._begun: StepPlan | None = None
        self._priced: StepPlan | None = None
        self._features: StepFeatures | None = None  # of ``_priced``
        self._unrecorded: list[tuple[tuple[Event, ...], int, _Step | None]] = []
        source.subscribe(self._source_changed)

    def begin(self, now: int) -> StepPlan | Idle:
        """Send what is due at ``now`` and plan the next step.

        ``Idle.wake_at`` is when the policies or the source have something next; None when only ``on_change`` helps, or
        nothing does: then ``is_over`` is True.

        Raises:
            KeyboardInterrupt: ``interrupt`` was called; no step is in flight.
            RunStopped: no policy lets anything run.
        """
        self.now = now
        due_at = self._next_event
        if self._changed or (due_at is not None and due_at <= now):
            self._send_due(now)
        step = self.engine.begin_step(now)
        if isinstance(step, Idle):
            return self._idle(step)
        self._begun = step
        return step

    def features(self, plan: StepPlan) -> StepFeatures:
        """What the duration of ``plan`` depends on; worked out once per plan."""
        features = self._features
        if features is None or self._priced is not plan:
            self._priced, self._features = plan, (features := step_features(plan, self.capture_sizes))
        return features

    def finish(self, plan: StepPlan, token_ids: Ints | None, now: int, device_ns: int | None = None) -> None:
        """The step has run: count its tokens, end requests, tell the source.

        ``token_ids`` are those of the plan's sampling rows, None where a simulation makes ids up. ``device_ns`` is
        the span measured on the device, if any. What happened is recorded by ``flush``.
        """
        start, self.now = self.now, now
        made_up = token_ids is None and self._script is None
        result = _MADE_UP if made_up else self._result(plan, token_ids)
        self._begun = None
        events = self.engine.finish_step(plan.step_id, result, now)
        self._unrecorded.append((events, now, (plan, start, device_ns)))
        if len(events) != 1 or not isinstance(events[0], TokensSampled):  # in most steps nothing else happens
            self._tell_of_ends(events, now)
        if self._checker is not None:
            self._checker.after_step(plan)

    def interrupt(self) -> None:
        """End the run at the next ``begin``; may be called from a signal handler."""
        self._is_interrupted = True
        self._source_changed()

    def cancel(self, now: int) -> None:
        """Forget the step that was begun, if one is in flight; what a policy raises meanwhile is left out."""
        if self._begun is None:
            return
        self.now = now
        plan, self._begun = self._begun, None
        with suppress(Exception):
            self._pass_on(self.engine.cancel_step(plan.step_id, now), now)

    def flush(self) -> None:
        """Record and report what happened since the last time; a driver may do this while the device is busy."""
        recorder, unrecorded, self._unrecorded = self._recorder, self._unrecorded, []
        for events, now, step in unrecorded:
            if step is not None:
                plan, start, device_ns = step
                features = self._features
                if features is None or self._priced is not plan:
                    features = self.features(plan)
                recorder.step(plan, features, start, now, device_ns)
            recorder.events(events, now)
        if self._on_events is not None:
            for events, _, _ in unrecorded:
                self._on_events(events)
        if self._on_progress is not None and self._num_ended > self._num_reported:
            self._num_reported = self._num_ended
            self._on_progress(self._num_ended)

    def outcome(self, error: BaseException | None = None) -> RunOutcome:
        """What was recorded until now; ``error`` is what ended the run early, whatever listeners raise after it."""
        with nullcontext() if error is None else suppress(Exception):
            self.flush()
        return RunOutcome(record=self._recorder.finish(self.now, self.engine.stats()), error=error)

    def _source_changed(self) -> None:
        self._changed = True
        self.on_change()

    def _send_due(self, now: int) -> None:
        """Pass on what clients do at or before ``now``: first those that give up, then new requests, in order."""
        if self._is_interrupted:
            raise KeyboardInterrupt
        self._changed = False
        source = self._source
        for request_id in source.due_aborts(now):
            self._pass_on(self.engine.abort(request_id, now), now)
        for spec in source.due(now):
            admission = self.engine.add_request(spec, now)
            if admission.refusal is None:
                self._recorder.sent(spec, now)
                self.on_accepted(spec)
            else:
                self._num_ended += 1
                self._recorder.refused(spec, now, admission.refusal, admission.detail)
                source.refused(spec.request_id, now)
        self._next_event = source.next_event_ns()

    def _idle(self, idle: Idle) -> Idle:
        self.is_over = idle.wake_at is None and self._source.exhausted
        times = [time for time in (idle.wake_at, self._source.next_event_ns()) if time is not None]
        return Idle(wake_at=min(times) if times and not self.is_over else None)

    def _result(self, plan: StepPlan, token_ids: Ints | None) -> StepResult:
        return StepResult(token_ids, () if self._script is None else self._script.ended(plan))

    def _pass_on(self, events: tuple[Event, ...], now: int) -> None:
        """What the next plan depends on happens at once, the rest with ``flush``."""
        self._unrecorded.append((events, now, None))
        self._tell_of_ends(events, now)

    def _tell_of_ends(self, events: tuple[Event, ...], now: int) -> None:
        ended = [event for event in events if isinstance(event, Finished)]
        if not ended:
            return
        self._num_ended += len(ended)
        self.on_ended([event.request_id for event in ended])
        for event in ended:
            self._source.finished(event, now)
