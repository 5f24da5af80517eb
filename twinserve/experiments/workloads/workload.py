"""The ``Workload`` that a backend serves: requests, clients and follow-ups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twinserve.run_core.traffic import FollowUp, Traffic
from twinserve.sched_core.requests.spec import RequestSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests and everything their clients do.

    ``output_lens`` gives, by request id, the true output length where it is below ``max_tokens``; a request that is
    not in it runs to its ``max_tokens``. ``follow_ups`` and ``abort_after_ns`` are those of ``Traffic``. ``warnings``
    are for the user. ``info`` (JSON values) says how the workload came about, and belongs in the result.
    """

    requests: tuple[RequestSpec, ...]
    output_lens: Mapping[int, int]
    follow_ups: Mapping[int, FollowUp]
    abort_after_ns: Mapping[int, int]
    max_concurrency: int | None
    warnings: tuple[str, ...]
    info: Mapping[str, Any]

    def traffic(self) -> Traffic:
        """Clients that have not sent anything yet; a run uses one up."""
        return Traffic(
            self.requests,
            max_concurrency=self.max_concurrency,
            follow_ups=self.follow_ups,
            abort_after_ns=self.abort_after_ns,
        )
