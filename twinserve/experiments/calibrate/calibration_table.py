"""A calibration's terms and errors as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from rich.table import Table

from twinserve.experiments.calibrate.outcome import Outcome, spread_of
from twinserve.experiments.report.narrow import narrow_table
from twinserve.experiments.report.numbers import UNKNOWN, fixed
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.calibration.values import HeldOutError, HostGap, StepTerms, Throttle
from twinserve.sim_backend.fitting.accuracy import Judged

WORST = 5


def terms_table(outcome: Outcome) -> Table:
    """One column per graph mode: terms, how many steps, spread of repeats."""
    calibration = outcome.calibration
    title = f"{calibration.model} on {calibration.gpu}"
    table = narrow_table(("term",), map(str, calibration.modes), title)
    columns = [list(_terms(terms)) for terms in calibration.modes.values()]
    for rows in zip(*columns, strict=True):
        table.add_row(rows[0][0], *(value for _, value in rows))
    table.add_section()
    table.add_row("steps fitted", *(str(len(outcome.fitted.steps.of(mode))) for mode in calibration.modes))
    spreads = [spread_of(outcome.steps.of(mode)) for mode in calibration.modes]
    table.add_row("spread of repeats %", *(fixed(each, 2) for each in spreads))
    return table


def gap_line(gap: HostGap) -> str:
    """The host gap in words."""
    return (
        f"host gap: {gap.base_ms * 1e3:.1f} us + {gap.per_row_us:.3g} us x rows + {gap.per_started_us:.3g} us x started"
        f" + {gap.prefill_us:.3g} us with prefills"
    )


def throttle_lines(throttles: Mapping[GraphMode, Throttle]) -> list[str]:
    """When the device slows down, in words."""
    return [
        f"throttle: {mode} steps are slower once over {throttle.from_share:.0%} of the last "
        f"{throttle.time_constant_ms:g} ms or so went to prompt tokens"
        for mode, throttle in throttles.items()
    ] or ["throttle: none seen"]


def errors_table(outcome: Outcome) -> Table:
    """MAPE, p95 and signed bias per graph mode: fitted, held out, and runs that were not fitted."""
    caption = "bias: summed predicted over summed measured time"
    table = narrow_table(("steps", "mode"), ("number", "MAPE", "p95", "bias"), "Error of step times, %", caption)
    for name, judged in {"fitted": outcome.fitted, **outcome.held_out}.items():
        table.add_section()
        for mode, part in _by_mode(judged, list(outcome.calibration.modes)):
            table.add_row(name, mode, *_figures(part))
    return table


def worst_table(outcome: Outcome) -> Table:
    """The held-out steps that are furthest off."""
    judged = outcome.judged
    order = np.argsort(-np.abs(judged.percent), kind="stable")[:WORST]
    headings = ("error %", "measured ms", "tokens", "padded", "rows", "context", "pairs")
    caption = "context: keys of decode rows; pairs: of prefill rows"
    table = narrow_table(("mode",), headings, "Worst held-out steps", caption)
    features, measured = judged.steps.features, judged.steps.judged_ns
    names = ("num_tokens", "num_padded_tokens", "num_rows", "decode_context", "prefill_pairs")
    for row in order.tolist():
        counts = [f"{int(features[name][row]):,}" for name in names]
        head = (str(judged.steps.modes[row]), f"{judged.percent[row]:+.1f}", f"{measured[row] / 1e6:.3f}")
        table.add_row(*head, *counts)
    return table


def _by_mode(judged: Judged, modes: list[GraphMode]) -> Iterator[tuple[str, HeldOutError]]:
    parts = {str(mode): judged.of(mode).error() for mode in modes}
    known = {name: error for name, error in parts.items() if error is not None}
    yield from known.items()
    total = judged.error()
    if len(known) > 1 and total is not None:
        yield "all", total


def _figures(error: HeldOutError) -> tuple[str, ...]:
    shares = (f"{error.mape_percent:.2f}", f"{error.p95_percent:.2f}", f"{error.bias_percent:+.2f}")
    return (str(error.num_steps), *shares)


def _terms(terms: StepTerms) -> Iterator[tuple[str, str]]:
    (least, first), (most, last) = terms.dense_knots_ms[0], terms.dense_knots_ms[-1]
    yield "dense ms at fewest tokens", f"{first:.4g} at {least:g}"
    yield "dense ms at most tokens", f"{last:.4g} at {most:g}"
    yield "dense knots", str(len(terms.dense_knots_ms))
    yield "launch floor ms", _number(terms.floor_ms)
    yield "us per 1000 decode keys", _number(1e3 * terms.per_context_token_us)
    yield "us per 1000 prefill pairs", _number(1e3 * terms.per_prefill_pair_us)
    yield "us per 1000 prefill keys", _number(1e3 * terms.per_prefill_key_us)
    yield "us per row", _number(terms.per_row_us)
    yield "us per sampled row", _number(terms.per_sample_us)
    yield "throttled: ms", _number(terms.throttled_ms)
    yield "throttled: us per 1000 tokens", _number(1e3 * terms.per_throttled_token_us)
    yield "throttled: us per 1000 keys", _number(1e3 * terms.per_throttled_context_token_us)


def _number(value: float) -> str:
    return UNKNOWN if value == 0 else f"{value:.4g}"
