"""The formula over single steps and the one over columns of steps say the same, whatever the terms."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim_backend.measured_steps import random_features
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.features import StepFeatures
from twinserve.sim_backend.calibration.calibrated import _Mode
from twinserve.sim_backend.calibration.recent_work import TIME_CONSTANTS_MS
from twinserve.sim_backend.calibration.values import HostGap, StepTerms, Throttle
from twinserve.sim_backend.fitting.measured import MeasuredSteps
from twinserve.sim_backend.fitting.predict import device_ns, host_gap_ns

COUNT = 40


def drawn_terms(draw: np.random.Generator) -> tuple[StepTerms, HostGap, Throttle]:
    """Terms of which each is 0 or not, floors that bind for some steps, and a throttle."""

    def maybe(largest: float) -> float:
        return float(draw.uniform(0, largest)) if draw.random() < 0.7 else 0.0

    knots = np.cumsum(draw.uniform(1, 80, int(draw.integers(2, 5))))
    milliseconds = np.cumsum(draw.uniform(0.1, 3, len(knots)))
    terms = StepTerms(
        dense_knots_ms=tuple(zip(knots.tolist(), milliseconds.tolist(), strict=True)),
        floor_ms=maybe(12),
        per_context_token_us=maybe(0.1),
        per_prefill_pair_us=maybe(0.01),
        per_prefill_key_us=maybe(0.1),
        per_row_us=maybe(20),
        per_sample_us=maybe(20),
        throttled_ms=maybe(4),
        per_throttled_token_us=maybe(10),
        per_throttled_context_token_us=maybe(0.1),
    )
    gap = HostGap(base_ms=maybe(1), per_row_us=maybe(5), per_started_us=maybe(30), prefill_us=maybe(200))
    throttle = Throttle(time_constant_ms=float(draw.choice(TIME_CONSTANTS_MS)), from_share=float(draw.uniform(0, 0.9)))
    return terms, gap, throttle


@pytest.mark.parametrize("mode", list(GraphMode))
@pytest.mark.parametrize("seed", range(20))
def test_one_step_costs_what_its_row_of_columns_costs(mode: GraphMode, seed: int) -> None:
    draw = np.random.default_rng(seed)
    terms, gap, throttle = drawn_terms(draw)
    unknown = np.full(COUNT, np.nan)
    steps = MeasuredSteps(
        features=random_features(COUNT, mode, seed),
        modes=np.full(COUNT, str(mode)),
        interval_ns=unknown,
        device_ns=unknown,
        in_loop=np.ones(COUNT, dtype=bool),
        held_out=np.zeros(COUNT, dtype=bool),
        spread_percent=unknown,
        shares=draw.uniform(0, 1, (COUNT, len(TIME_CONSTANTS_MS))),
    )
    extents = steps.throttled(throttle).tolist()
    scalar = _Mode(terms, gap)
    columns = {name: column.astype(int).tolist() for name, column in steps.features.items()}
    rows = [
        StepFeatures(graph_mode=mode, **{name: column[i] for name, column in columns.items()}) for i in range(COUNT)
    ]
    device = [scalar.device_ns(row) + scalar.slowdown_ns(row) * part for row, part in zip(rows, extents, strict=True)]
    assert device_ns(terms, steps, throttle) == pytest.approx(device, rel=1e-12)
    assert host_gap_ns(gap, steps) == pytest.approx([scalar.host_gap_ns(row) for row in rows], rel=1e-12)
