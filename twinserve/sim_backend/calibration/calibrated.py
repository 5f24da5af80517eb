"""The cost model that takes its step times from a calibration."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import copy
from typing import Literal

from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.errors import RunStopped
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.calibration.recent_work import RecentWork
from twinserve.sim_backend.calibration.values import Calibration, HostGap, StepTerms, Throttle
from twinserve.sim_backend.piecewise import PiecewiseLinear
from twinserve.sim_backend.units import NS_PER_MS, NS_PER_US

OutOfRange = Literal["warn", "fail"]


class CalibrationRangeWarning(UserWarning):
    """A step lies outside what the calibration has seen; its time is extrapolated."""


class CalibrationRangeError(RunStopped):
    """A step lies outside what the calibration has seen, and ``out_of_range`` is ``fail``."""


class CalibratedCostModel:
    """Prices steps by a ``Calibration``, in the order in which they run: a throttle remembers the last ones.

    ``out_of_range`` says what happens when a step leaves the covered ranges: ``warn`` once per feature and
    extrapolate, or ``fail``. A graph mode without terms always fails.

    Raises:
        CalibrationRangeError: from ``step_ns``, as said above.
    """

    __slots__ = ("_covered", "_modes", "_name", "_out_of_range", "_throttling", "_warned")

    def __init__(self, calibration: Calibration, out_of_range: OutOfRange = "warn") -> None:
        self._name = f"{calibration.model} on {calibration.gpu}"
        self._modes = {mode: _Mode(terms, calibration.host_gap) for mode, terms in calibration.modes.items()}
        self._covered = [
            (StepFeatures._fields.index(name), least, greatest)
            for name, (least, greatest) in calibration.covered.items()
        ]
        self._throttling = _Throttling(calibration.throttles) if calibration.throttles else None
        self._out_of_range = out_of_range
        self._warned: set[str] = set()

    def step_ns(self, features: StepFeatures, now: int) -> int:
        for index, least, greatest in self._covered:
            if not least <= features[index] <= greatest:  # type: ignore[operator] # never the graph mode
                self._leave_range(StepFeatures._fields[index], features[index], least, greatest)
        mode = self._mode(features)
        device, gap = mode.device_ns(features), mode.host_gap_ns(features)
        if self._throttling is not None:
            device = self._throttling.slowed(features, now, device, gap, mode.slowdown_ns(features))
        return max(round(device + gap), 1)

    def without_memory(self) -> CalibratedCostModel:
        """The same prices as if nothing had run before: for what-if questions, which must leave no trace."""
        twin = copy(self)
        twin._throttling = None  # noqa: SLF001 - a copy of this very object
        return twin

    def host_gap_ns(self, features: StepFeatures) -> float:
        """The part of ``step_ns`` in which the device is idle."""
        return self._mode(features).host_gap_ns(features)

    def wake_ns(self, now: int) -> int:
        return now

    def _mode(self, features: StepFeatures) -> _Mode:
        mode = self._modes.get(features.graph_mode)
        if mode is None:
            raise CalibrationRangeError(self._no_terms(features.graph_mode))
        return mode

    def _leave_range(self, name: str, value: object, least: int, greatest: int) -> None:
        message = f"calibration of {self._name}: {name} {value} is outside the covered {least}..{greatest}"
        if self._out_of_range == "fail":
            raise CalibrationRangeError(message)
        if name not in self._warned:
            self._warned.add(name)
            warnings.warn(f"{message}; extrapolating", CalibrationRangeWarning, stacklevel=3)

    def _no_terms(self, mode: GraphMode) -> str:
        known = ", ".join(self._modes)
        return f"calibration of {self._name}: no terms for {mode} steps, only for {known}"


class _Throttling:
    """Throttles with the work that they remember: every step counts for each of them."""

    __slots__ = ("_throttles",)

    def __init__(self, throttles: Mapping[GraphMode, Throttle]) -> None:
        self._throttles = {
            mode: (throttle, RecentWork(throttle.time_constant_ms * NS_PER_MS)) for mode, throttle in throttles.items()
        }

    def slowed(self, features: StepFeatures, start: int, device: float, gap: float, slowdown: float) -> float:
        """``device`` and as much of ``slowdown`` as the steps before and this one itself bring about."""
        prefills = features.prefill_tokens > 0
        own = self._throttles.get(features.graph_mode)
        if own is not None:
            throttle, work = own
            device += slowdown * throttle.extent(work.mean_during(start, device if prefills else 0.0, device + gap))
        for _, work in self._throttles.values():
            work.passes(start, device if prefills else 0.0, device + gap)
        return device


class _Mode:
    """The terms of one graph mode with the host gap, in nanoseconds."""

    __slots__ = (
        "_dense",
        "_floor",
        "_host",
        "_per_context",
        "_per_key",
        "_per_pair",
        "_per_row",
        "_per_sample",
        "_slowdown",
    )

    def __init__(self, terms: StepTerms, gap: HostGap) -> None:
        self._dense = PiecewiseLinear((tokens, ms * NS_PER_MS) for tokens, ms in terms.dense_knots_ms)
        self._floor = terms.floor_ms * NS_PER_MS
        self._per_context = terms.per_context_token_us * NS_PER_US
        self._per_pair = terms.per_prefill_pair_us * NS_PER_US
        self._per_key = terms.per_prefill_key_us * NS_PER_US
        self._per_row = terms.per_row_us * NS_PER_US
        self._per_sample = terms.per_sample_us * NS_PER_US
        per_count = (terms.per_throttled_token_us * NS_PER_US, terms.per_throttled_context_token_us * NS_PER_US)
        self._slowdown = (terms.throttled_ms * NS_PER_MS, *per_count)
        microseconds = (gap.base_ms * 1e3, gap.per_row_us, gap.per_started_us, gap.prefill_us)
        self._host = tuple(term * NS_PER_US for term in microseconds)

    def device_ns(self, features: StepFeatures) -> float:
        # Taken apart at once: reading fields by name costs more than all the arithmetic.
        _, rows, _, context, _, pairs, keys, samples, _, _, padded_tokens = features
        device = self._dense(padded_tokens) + self._per_context * context + self._per_pair * pairs
        device += self._per_key * keys + self._per_row * rows + self._per_sample * samples
        return max(device, self._floor)

    def slowdown_ns(self, features: StepFeatures) -> float:
        """The time that a full throttle adds."""
        constant, per_token, per_context = self._slowdown
        return constant + per_token * features.num_padded_tokens + per_context * features.decode_context

    def host_gap_ns(self, features: StepFeatures) -> float:
        _, rows, decodes, _, _, _, _, _, started, _, _ = features
        base, per_row, per_started, prefill = self._host
        gap = base + per_row * rows + per_started * started
        return gap + prefill if rows > decodes else gap
