"""What every driver returns: the record of a run, and why it ended early."""

from __future__ import annotations

from dataclasses import dataclass

from twinserve.run_core.record import RunRecord
from twinserve.sched_core.errors import RunStopped


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """A run's record. ``error`` says why it ended early, with unfinished requests in the record; else it is None."""

    record: RunRecord
    error: RunStopped | None = None

    def complete(self) -> RunRecord:
        """The record of a run that went to its end; raises ``error`` otherwise."""
        if self.error is not None:
            raise self.error
        return self.record
