"""The formula of ``CalibratedCostModel`` over columns of steps."""

from __future__ import annotations

import numpy as np

from twinserve.sim_backend.arrays import Floats
from twinserve.sim_backend.calibration.values import Calibration, HostGap, StepTerms, Throttle
from twinserve.sim_backend.fitting.measured import MeasuredSteps
from twinserve.sim_backend.piecewise import PiecewiseLinear
from twinserve.sim_backend.units import NS_PER_MS, NS_PER_US


def device_ns(terms: StepTerms, steps: MeasuredSteps, throttle: Throttle | None = None) -> Floats:
    """Device time of steps of one graph mode."""
    features = steps.features
    dense = PiecewiseLinear(terms.dense_knots_ms)
    total = np.array([dense(tokens) for tokens in features["num_padded_tokens"]]) * NS_PER_MS
    total += terms.per_context_token_us * NS_PER_US * features["decode_context"]
    total += terms.per_prefill_pair_us * NS_PER_US * features["prefill_pairs"]
    total += terms.per_prefill_key_us * NS_PER_US * features["prefill_context"]
    total += terms.per_row_us * NS_PER_US * features["num_rows"]
    total += terms.per_sample_us * NS_PER_US * features["num_samples"]
    slowdown = terms.throttled_ms * NS_PER_MS + terms.per_throttled_token_us * NS_PER_US * features["num_padded_tokens"]
    slowdown += terms.per_throttled_context_token_us * NS_PER_US * features["decode_context"]
    return np.maximum(total, terms.floor_ms * NS_PER_MS) + slowdown * steps.throttled(throttle)


def host_gap_ns(gap: HostGap, steps: MeasuredSteps) -> Floats:
    """Host time of steps."""
    features = steps.features
    microseconds = gap.per_row_us * features["num_rows"] + gap.per_started_us * features["num_started"]
    microseconds += gap.prefill_us * (features["num_rows"] > features["num_decodes"])
    return gap.base_ms * NS_PER_MS + microseconds * NS_PER_US


def predicted_ns(calibration: Calibration, steps: MeasuredSteps) -> Floats:
    """The prediction for ``steps.judged_ns``; NaN for graph modes without terms.

    Steps that were launched outside a loop, with their device time known, are predicted without the host gap.
    """
    total = np.full(len(steps), np.nan)
    for mode, terms in calibration.modes.items():
        rows = steps.modes == str(mode)
        total[rows] = device_ns(terms, steps.where(rows), calibration.throttles.get(mode))
    with_gap = steps.in_loop | ~np.isfinite(steps.device_ns)
    return total + np.where(with_gap, host_gap_ns(calibration.host_gap, steps), 0.0)
