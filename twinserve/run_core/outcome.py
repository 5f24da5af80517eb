"""What every driver returns: the record of a run, and why it ended early."""

from __future__ import annotations

from dataclasses import dataclass

from twinserve.run_core.record import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """A run's record. ``error`` is what ended it early, with unfinished requests in the record; else it is None.

    It is a ``RunStopped`` when the engine, its policies or its device could not go on, KeyboardInterrupt when the user
    stopped the run, and anything else that a policy or a listener raised.
    """

    record: RunRecord
    error: BaseException | None = None

    def complete(self) -> RunRecord:
        """The record of a run that went to its end; raises ``error`` otherwise."""
        if self.error is not None:
            raise self.error
        return self.record
