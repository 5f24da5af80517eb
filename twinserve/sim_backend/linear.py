"""The linear cost model: step times linear, or piecewise linear, in a few counts of the step."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite

from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.piecewise import PiecewiseLinear
from twinserve.sim_backend.units import NS_PER_MS, NS_PER_US


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearTerms:
    """One straight-line step time, in the units that the names say.

    ``max(floor_ms, base_ms + per_token_ms * tokens) + per_context_token_us * decode_context + host gap``, where
    tokens are counted after graph padding and the host gap is ``host_gap_ms + host_per_row_us * rows +
    host_per_started_us * started``. ``knots`` ((tokens, ms), ascending) replace ``base_ms`` and ``per_token_ms``.

    Raises:
        ValueError: a negative or non-finite number, knots beside base or slope, or a step that could take no time.
    """

    base_ms: float = 0.0
    per_token_ms: float = 0.0
    floor_ms: float = 0.0
    per_context_token_us: float = 0.0
    host_gap_ms: float = 0.0
    host_per_row_us: float = 0.0
    host_per_started_us: float = 0.0
    knots: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "knots" and (not isfinite(value) or value < 0):
                raise ValueError(f"{field.name} must be finite and not negative, got {value}")
        if self.knots and (self.base_ms or self.per_token_ms):
            raise ValueError("knots replace base_ms and per_token_ms: give one or the other")
        if not self._is_positive():
            raise ValueError("a step would take no time: set floor_ms, base_ms, per_token_ms, knots or host_gap_ms")

    def dense(self) -> PiecewiseLinear:
        """The part over tokens (ms), before floor, context and host gap."""
        return PiecewiseLinear(self.knots or ((0.0, self.base_ms), (1.0, self.base_ms + self.per_token_ms)))

    def _is_positive(self) -> bool:
        constant = self.floor_ms + self.host_gap_ms
        return constant > 0 or self.dense()(1) > 0


class LinearCostModel:
    """Prices steps with one ``LinearTerms``, or with another one for steps that hold only decodes."""

    __slots__ = ("_decode_only", "_mixed")

    def __init__(self, terms: LinearTerms, decode_only: LinearTerms | None = None) -> None:
        self._mixed = _Branch(terms)
        self._decode_only = self._mixed if decode_only is None else _Branch(decode_only)

    def step_ns(self, features: StepFeatures, now: int) -> int:  # noqa: ARG002 - the protocol's signature
        branch = self._mixed if features.prefill_tokens else self._decode_only
        return max(round(branch.step_ns(features)), 1)

    def host_gap_ns(self, features: StepFeatures) -> float:
        """The part of ``step_ns`` in which the device is idle."""
        return (self._mixed if features.prefill_tokens else self._decode_only).host_gap_ns(features)

    def wake_ns(self, now: int) -> int:
        return now


class _Branch:
    """``LinearTerms`` in nanoseconds, arranged for speed."""

    __slots__ = ("_base", "_dense", "_floor", "_host_gap", "_per_context", "_per_row", "_per_started", "_slope")

    def __init__(self, terms: LinearTerms) -> None:
        self._dense = terms.dense() if terms.knots else None
        self._base = terms.base_ms * NS_PER_MS
        self._slope = terms.per_token_ms * NS_PER_MS
        self._floor = terms.floor_ms * NS_PER_MS
        self._per_context = terms.per_context_token_us * NS_PER_US
        self._host_gap = terms.host_gap_ms * NS_PER_MS
        self._per_row = terms.host_per_row_us * NS_PER_US
        self._per_started = terms.host_per_started_us * NS_PER_US

    def step_ns(self, features: StepFeatures) -> float:
        tokens = features.num_padded_tokens
        device = self._base + self._slope * tokens if self._dense is None else self._dense(tokens) * NS_PER_MS
        device = max(device, self._floor) + self._per_context * features.decode_context
        return device + self.host_gap_ns(features)

    def host_gap_ns(self, features: StepFeatures) -> float:
        return self._host_gap + self._per_row * features.num_rows + self._per_started * features.num_started
