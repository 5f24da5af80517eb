"""Fits the terms of one graph mode and of the host gap to measured steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.arrays import Bools, Floats
from twinserve.sim_backend.calibration.values import HostGap, StepTerms, Throttle
from twinserve.sim_backend.fitting.dense import eager_knots, graph_knots, rise_columns, value_columns
from twinserve.sim_backend.fitting.measured import MeasuredSteps
from twinserve.sim_backend.fitting.predict import device_ns
from twinserve.sim_backend.fitting.robust import fit_non_negative
from twinserve.sim_backend.units import NS_PER_MS, NS_PER_US

COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "per_context_token_us": "decode_context",
        "per_prefill_pair_us": "prefill_pairs",
        "per_prefill_key_us": "prefill_context",
        "per_sample_us": "num_samples",
        "per_row_us": "num_rows",
    }
)
"""Term of ``StepTerms`` -> the count that it multiplies."""

MIN_STEPS = 8
FLOOR_GUESSES = 12
FLOOR_ROUNDS = 8
FLOOR_MUST_GIVE = 0.98  # of the error without one: a floor that gives less is noise
DIGITS = 6


def fit_terms(steps: MeasuredSteps, target_ns: Floats, mode: GraphMode, throttle: Throttle | None = None) -> StepTerms:
    """Terms for ``steps``, all of one mode, that take ``target_ns`` (device times, or intervals as a whole).

    Eager steps may sit on a launch floor: the floor and the steps on it are found together, from several guesses.
    """
    without = _linear_terms(steps, target_ns, mode, throttle)
    if mode is not GraphMode.EAGER:
        return without
    guesses = _floor_guesses(target_ns, device_ns(without, steps, throttle))
    found = [without, *(_from_floor(steps, target_ns, on_floor, throttle) for on_floor in guesses)]
    errors = [round(_typical_error(terms, steps, target_ns, throttle), 6) for terms in found]
    best = int(np.argmin(errors))
    return found[best if errors[best] <= FLOOR_MUST_GIVE * errors[0] else 0]


def fit_host_gap(steps: MeasuredSteps) -> HostGap:
    """The part of the steps' intervals that their device times leave."""
    features = steps.features
    has_prefills = features["num_rows"] > features["num_decodes"]
    columns = np.column_stack([np.ones(len(steps)), features["num_rows"], features["num_started"], has_prefills])
    gaps_us = np.maximum((steps.interval_ns - steps.device_ns) / NS_PER_US, 1e-3)
    base, per_row, per_started, prefill = map(rounded, fit_non_negative(columns, gaps_us))
    return HostGap(
        base_ms=rounded(base / 1e3),
        per_row_us=per_row,
        per_started_us=per_started,
        prefill_us=prefill,
    )


def rounded(value: float) -> float:
    """``value`` with the digits that a file keeps."""
    return float(f"{value:.{DIGITS}g}")


def _linear_terms(steps: MeasuredSteps, target_ns: Floats, mode: GraphMode, throttle: Throttle | None) -> StepTerms:
    """Terms without a floor. Over graphs the dense part may fall: each size has matrix products of its own, and a
    library may choose better ones for 16 rows than for 8; eager sizes share their kernels."""
    tokens = steps.features["num_padded_tokens"]
    never_falls = mode is GraphMode.EAGER
    knots = eager_knots(tokens) if never_falls else graph_knots(tokens)
    dense = rise_columns(tokens, knots) if never_falls else value_columns(tokens, knots)
    slowdown = slowdown_columns(steps, mode, throttle)
    counts = _distinct({term: steps.features[name] for term, name in COLUMNS.items()} | slowdown)
    columns = np.column_stack([dense, *counts.values()])
    fitted = fit_non_negative(columns, target_ns / NS_PER_US)
    levels = np.cumsum(fitted[: len(knots)]) if never_falls else fitted[: len(knots)]
    values = {term: rounded(value) for term, value in zip(counts, fitted[len(knots) :], strict=True)}
    return StepTerms(
        dense_knots_ms=tuple((float(x), rounded(us / 1e3)) for x, us in zip(knots, levels, strict=True)),
        throttled_ms=rounded(values.pop("throttled_us", 0.0) / 1e3),
        **values,
    )


def slowdown_columns(steps: MeasuredSteps, mode: GraphMode, throttle: Throttle | None) -> dict[str, Floats]:
    """The counts that a throttle's terms multiply, by term. Decodes wait for memory, however many and long."""
    slowed = steps.throttled(throttle)
    if mode is GraphMode.DECODE:
        return {"throttled_us": slowed}
    return {
        "throttled_us": slowed,
        "per_throttled_token_us": slowed * steps.features["num_padded_tokens"],
        "per_throttled_context_token_us": slowed * steps.features["decode_context"],
    }


def _distinct(columns: Mapping[str, Floats]) -> dict[str, Floats]:
    """Columns without those that equal an earlier one (in decode steps, every row is sampled) or are all zero."""
    kept: dict[str, Floats] = {}
    for name, column in columns.items():
        if column.any() and not any(np.array_equal(column, other) for other in kept.values()):
            kept[name] = column
    return kept


def _floor_guesses(target_ns: Floats, expected_ns: Floats) -> Iterator[Bools]:
    """Which steps may lie on the floor: those that took, or that terms without a floor expect to take, little time.

    Only by the expected time is a small step that the host delayed below the floor.
    """
    for times in (target_ns, expected_ns):
        levels = np.quantile(times, np.linspace(0, 0.95, FLOOR_GUESSES), method="nearest")
        yield from (times <= level for level in np.unique(levels))


def _from_floor(steps: MeasuredSteps, target_ns: Floats, on_floor: Bools, throttle: Throttle | None) -> StepTerms:
    """Terms near a guess of which steps lie on the floor: these, and what the others cost, found in turn."""
    terms = _split_terms(steps, target_ns, on_floor, throttle)
    for _ in range(FLOOR_ROUNDS):
        now = device_ns(replace(terms, floor_ms=0.0), steps, throttle) <= terms.floor_ms * NS_PER_MS
        if (now == on_floor).all():
            break
        on_floor = now
        terms = _split_terms(steps, target_ns, on_floor, throttle)
    return terms


def _split_terms(steps: MeasuredSteps, target_ns: Floats, on_floor: Bools, throttle: Throttle | None) -> StepTerms:
    above = ~on_floor
    if above.sum() < MIN_STEPS or not on_floor.any():
        return _linear_terms(steps, target_ns, GraphMode.EAGER, throttle)
    terms = _linear_terms(steps.where(above), target_ns[above], GraphMode.EAGER, throttle)
    floor_ms = rounded(float(np.median(target_ns[on_floor])) / NS_PER_MS)
    return replace(terms, dense_knots_ms=_down_to_zero(terms.dense_knots_ms), floor_ms=floor_ms)


def _down_to_zero(knots: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """``knots`` with the first slope drawn on to no tokens: the steps on the floor show nothing of it."""
    (least, first), *others = knots
    if least == 0 or not others:
        return knots
    slope = (others[0][1] - first) / (others[0][0] - least)
    return ((0.0, rounded(max(first - slope * least, 0.0))), *knots)


def _typical_error(terms: StepTerms, steps: MeasuredSteps, target_ns: Floats, throttle: Throttle | None) -> float:
    """Mean absolute relative error without the worst twentieth."""
    errors = np.sort(np.abs(device_ns(terms, steps, throttle) / target_ns - 1))
    return float(errors[: max(int(0.95 * len(errors)), 1)].mean())
