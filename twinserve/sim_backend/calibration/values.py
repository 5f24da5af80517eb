"""A calibration as a value: fitted terms, measured engine, covered ranges and held-out error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any

from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes, GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.piecewise import PiecewiseLinear


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTerms:
    """Device time of one kind of step (eager, decode graph or mixed graph).

    ``max(floor_ms, dense(padded tokens) + context + pairs + keys + rows + head)``: ``dense_knots_ms`` are
    (tokens, ms) pairs, ``per_context_token_us`` is paid per decode-context token, ``per_prefill_pair_us`` per
    query-key pair of prefill rows, ``per_prefill_key_us`` per key that prefill rows read, ``per_row_us`` per row and
    ``per_sample_us`` per sampled row. ``floor_ms`` is the time that launching an eager step takes. ``throttled_ms``,
    ``per_throttled_token_us`` (per padded token) and ``per_throttled_context_token_us`` (per decode-context token) are
    added as far as the calibration's throttle for such steps says.

    Raises:
        ValueError: a negative or non-finite number, or knots that do not ascend.
    """

    dense_knots_ms: tuple[tuple[float, float], ...]
    floor_ms: float = 0.0
    per_context_token_us: float = 0.0
    per_prefill_pair_us: float = 0.0
    per_prefill_key_us: float = 0.0
    per_row_us: float = 0.0
    per_sample_us: float = 0.0
    throttled_ms: float = 0.0
    per_throttled_token_us: float = 0.0
    per_throttled_context_token_us: float = 0.0

    def __post_init__(self) -> None:
        _check_not_negative(self, skip="dense_knots_ms")
        PiecewiseLinear(self.dense_knots_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """A power limit: the clock falls as more of the recent time went to steps with prompt tokens (``recent_work.py``).

    It comes back slowly, and steps of one kind feel it longer than those of another.

    Nothing happens up to the share ``from_share`` (0 to less than 1), all of it at the share 1, in proportion between;
    ``time_constant_ms`` is how far back the share reaches.

    Raises:
        ValueError: a number out of its range.
    """

    time_constant_ms: float
    from_share: float

    def __post_init__(self) -> None:
        if not (isfinite(self.time_constant_ms) and self.time_constant_ms > 0):
            raise ValueError(f"time_constant_ms must be finite and above 0, got {self.time_constant_ms}")
        if not 0 <= self.from_share < 1:
            raise ValueError(f"from_share must be at least 0 and less than 1, got {self.from_share}")

    def extent(self, share: float) -> float:
        """How much of the slowdown there is, 0 to 1."""
        return max(share - self.from_share, 0.0) / (1.0 - self.from_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGap:
    """Host time between two steps.

    ``base_ms + per_row_us * rows + per_started_us * started requests``, and ``prefill_us`` once where there are prefill
    rows: however many, the host then prepares another kind of batch.
    """

    base_ms: float = 0.0
    per_row_us: float = 0.0
    per_started_us: float = 0.0
    prefill_us: float = 0.0

    def __post_init__(self) -> None:
        _check_not_negative(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutError:
    """Error on steps that were not fitted, in percent: mean and 95th percentile of the absolute, and the signed sum."""

    num_steps: int
    mape_percent: float
    p95_percent: float
    bias_percent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEngine:
    """The measured engine: ``num_blocks`` and ``block_size`` are its KV pool, ``capture_sizes`` its CUDA graphs."""

    gpu: str
    model: str
    dtype: str
    attention_backend: str
    num_blocks: int
    block_size: int
    capture_sizes: CaptureSizes = NO_GRAPHS


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration(MeasuredEngine):
    """Fitted step times of one engine on one GPU, with their origin.

    ``modes`` has the terms per graph mode (keys ``eager``, ``decode``, ``mixed``), ``throttles`` those modes that load
    was seen to slow down. ``covered`` maps fields of ``StepFeatures`` to the (least, greatest) value seen
    while fitting. ``held_out`` is None where nothing was held out.
    ``origin`` says in words where the numbers come from.

    Raises:
        ValueError: no terms at all, an unknown field in ``covered`` or a range upside down.
    """

    origin: str
    modes: Mapping[GraphMode, StepTerms]
    host_gap: HostGap = field(default_factory=HostGap)
    throttles: Mapping[GraphMode, Throttle] = field(default_factory=dict)
    covered: Mapping[str, tuple[int, int]]
    held_out: HeldOutError | None = None

    def __post_init__(self) -> None:
        if not self.modes:
            raise ValueError("modes: at least one of eager, decode, mixed is needed")
        if min(self.num_blocks, self.block_size) < 1:
            raise ValueError("num_blocks and block_size must be at least 1")
        for name, (least, greatest) in self.covered.items():
            if name not in StepFeatures._fields or name == "graph_mode":
                raise ValueError(f"covered: {name!r} is not a count of StepFeatures")
            if least > greatest:
                raise ValueError(f"covered: {name} has its least value {least} above its greatest {greatest}")


def _check_not_negative(terms: Any, skip: str = "") -> None:
    for item in fields(terms):
        value = getattr(terms, item.name)
        if item.name != skip and (not isfinite(value) or value < 0):
            raise ValueError(f"{item.name} must be finite and not negative, got {value}")
