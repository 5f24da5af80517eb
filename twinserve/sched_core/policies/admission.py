"""Further conditions on admission."""

from __future__ import annotations

from twinserve.sched_core.policies.interfaces import AdmissionState
from twinserve.sched_core.requests.request import Request


class AlwaysAdmit:
    """No condition beyond budget, sequence cap and blocks."""

    def may_admit(self, request: Request, num_needed_blocks: int, state: AdmissionState) -> bool:
        return True

    def wake_at(self, now: int) -> int | None:
        return None
