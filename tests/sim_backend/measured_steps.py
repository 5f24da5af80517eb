"""A made-up engine: calibrations of it, and measured steps whose device times follow given terms exactly."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from twinserve.sched_core.dispatch import CaptureSizes, GraphMode, dispatch
from twinserve.sim_backend.calibration.recent_work import unknown_shares
from twinserve.sim_backend.calibration.values import Calibration, HostGap, MeasuredEngine
from twinserve.sim_backend.fitting.held_out import held_out_blocks
from twinserve.sim_backend.fitting.measured import MeasuredSteps
from twinserve.sim_backend.fitting.predict import device_ns, host_gap_ns

SIZES = CaptureSizes(decode=(1, 8, 32), mixed=(64, 256))
ENGINE = MeasuredEngine(
    gpu="some GPU",
    model="some model",
    dtype="bfloat16",
    attention_backend="fa2",
    num_blocks=100,
    block_size=16,
    capture_sizes=SIZES,
)


def made_up(modes, **values):
    """A calibration of ENGINE, but for ``values``, with these terms by mode."""
    facts = {fact.name: getattr(ENGINE, fact.name) for fact in fields(ENGINE)}
    return Calibration(**{**facts, "origin": "made up", "covered": {}, "modes": modes, **values})


def random_features(count, mode, seed=0):
    """Counts of ``count`` steps that run in ``mode`` under SIZES (eager: of any size, without graphs)."""
    draw = np.random.default_rng(seed)
    decodes = draw.integers(1, 31, count) if mode is GraphMode.DECODE else draw.integers(0, 30, count)
    prefills = np.zeros(count, int) if mode is GraphMode.DECODE else draw.integers(1, 4, count)
    chunk = prefills * draw.integers(2, 60, count)
    before = prefills * draw.integers(0, 3000, count)
    rows, tokens = decodes + prefills, decodes + chunk
    sizes = SIZES if mode is not GraphMode.EAGER else CaptureSizes()
    padded = tokens
    if mode is not GraphMode.EAGER:
        padded = np.array(
            [dispatch(int(t), int(r), sizes).num_padded_tokens for t, r in zip(tokens, rows, strict=True)]
        )
    columns = {
        "num_tokens": tokens,
        "num_rows": rows,
        "num_decodes": decodes,
        "decode_context": decodes * draw.integers(10, 2000, count),
        "prefill_tokens": chunk,
        "prefill_pairs": chunk * before // 2 + chunk * (chunk + 1) // 2,
        "prefill_context": before + chunk,
        "num_samples": decodes + draw.integers(0, 2, count) * prefills,
        "num_started": draw.integers(0, 3, count),
        "num_padded_tokens": padded,
    }
    return {name: column.astype(float) for name, column in columns.items()}


def steps_of(terms, mode, gap=None, count=400, seed=0, noise=None):
    """Steps of an engine's loop that take exactly ``terms`` and ``gap``, times ``1 + noise``."""
    blank = MeasuredSteps(
        features=random_features(count, mode, seed),
        modes=np.full(count, str(mode)),
        interval_ns=np.full(count, np.nan),
        device_ns=np.full(count, np.nan),
        in_loop=np.ones(count, dtype=bool),
        held_out=held_out_blocks(np.arange(count, dtype=float)),
        spread_percent=np.full(count, np.nan),
        shares=unknown_shares(count),
    )
    device = device_ns(terms, blank) * (1 if noise is None else 1 + noise)
    return timed(blank, device, device + host_gap_ns(gap or HostGap(), blank))


def timed(steps, device_ns, interval_ns):
    """``steps`` with other times."""
    return replace(steps, device_ns=device_ns, interval_ns=interval_ns)


def scaled(steps, factor):
    """``steps`` with all times multiplied."""
    return timed(steps, steps.device_ns * factor, steps.interval_ns * factor)
