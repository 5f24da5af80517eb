"""Reads profiles and real runs as measured steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twinserve.experiments.calibrate.facts import Source, facts_of
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.store.profile_folder import read_profile_steps
from twinserve.experiments.store.run_folder import read_config, read_manifest, read_run_steps
from twinserve.experiments.store.step_columns import COUNTS, StepColumns
from twinserve.sim_backend.arrays import Bools, Floats, Matrix
from twinserve.sim_backend.calibration.recent_work import recent_shares, unknown_shares
from twinserve.sim_backend.fitting.held_out import held_out_blocks, held_out_shapes
from twinserve.sim_backend.fitting.measured import MeasuredSteps, join

STARTED_BELOW = 1 << 20
NO_FACTS = "it says what was measured; measure again"
SHAPE = tuple(name for name in COUNTS if name != "num_started")


def run_source(folder: Path, num_blocks: int | None = None) -> Source:
    """The steps of an ordinary real run; every fifth block of steps is held out.

    A step's interval starts at its own boundary, so that idle waits are in none.

    Raises:
        ConfigError: a simulated or unfinished run, or a damaged one.
    """
    manifest = read_manifest(folder, NO_FACTS)
    if manifest.get("backend") != "real":
        raise ConfigError("is not a real run; its step times come from a cost model", file=folder)
    engine = read_config(folder).get("engine")
    columns = read_run_steps(folder, ("step_id", "start_ns", "end_ns", "device_ns"))
    start = columns.numbers("start_ns")
    interval = _positive(columns, columns.numbers("end_ns") - start)
    shares = _shares(columns, start, interval, np.zeros(len(start)))
    steps = _run_steps(columns, interval, columns.numbers("step_id"), shares)
    manifest = {**manifest, "block_size": engine.get("block_size") if isinstance(engine, dict) else None}
    facts = facts_of(folder, _with_blocks(manifest, num_blocks), timed=steps.timed_on_device)
    return Source(facts, steps, f"{len(steps)} steps of the run {folder.name}")


def profile_source(folder: Path, num_blocks: int | None = None) -> Source:
    """A profile: shapes launched alone (medians over their repeats), and steps of short runs of the whole engine.

    About a fifth of the shapes and every fifth block of the runs' steps are held out.

    Raises:
        ConfigError: a damaged profile.
    """
    manifest = read_manifest(folder, NO_FACTS)
    columns = read_profile_steps(folder, ("source", "shape_id", "interval_ns", "device_ns"))
    in_loop = columns.texts("source") == "engine"
    interval, shape, started = (columns.numbers(name) for name in ("interval_ns", "shape_id", "num_started"))
    _positive(columns, interval)
    start = np.cumsum(interval) - interval  # an engine run is never idle
    shares = _shares(columns, start, interval, np.where(in_loop, shape, -1))
    runs = _run_steps(columns, interval, _index_within(shape), shares).where(in_loop)
    shapes = _shapes(columns, interval, shape * STARTED_BELOW + started, ~in_loop)
    steps = join([part for part in (shapes, runs) if len(part)])
    facts = facts_of(folder, _with_blocks(manifest, num_blocks), timed=steps.timed_on_device)
    origin = f"{len(shapes)} shapes and {len(runs)} steps of short runs of the profile {folder.name}"
    return Source(
        facts, steps, origin, _notes(folder, complete=manifest.get("complete") is True, has_runs=in_loop.any())
    )


def _notes(folder: Path, *, complete: bool, has_runs: bool) -> tuple[str, ...]:
    unfinished = f"{folder.name} is not complete: `twinserve profile` resumes it"
    no_runs = f"{folder.name} has no steps of a whole engine: its host gap holds no scheduling"
    return (*((unfinished,) if not complete else ()), *((no_runs,) if not has_runs else ()))


def _with_blocks(manifest: dict[str, object], num_blocks: int | None) -> dict[str, object]:
    return manifest if num_blocks is None else {**manifest, "num_blocks": num_blocks}


def _positive(columns: StepColumns, interval_ns: Floats) -> Floats:
    """``interval_ns`` of steps that are possible."""
    if (interval_ns <= 0).any():
        row = int(np.flatnonzero(interval_ns <= 0)[0])
        raise ConfigError(f"row {row} ends before it starts; measure again", file=columns.path)
    columns.check_device_within(interval_ns)
    return interval_ns


def _run_steps(columns: StepColumns, interval_ns: Floats, index: Floats, shares: Matrix) -> MeasuredSteps:
    return MeasuredSteps(
        features=columns.counts(),
        modes=columns.modes(),
        interval_ns=interval_ns,
        device_ns=columns.device_ns(),
        in_loop=np.ones(len(interval_ns), dtype=bool),
        held_out=held_out_blocks(index),
        spread_percent=np.full(len(interval_ns), np.nan),
        shares=shares,
    )


def _shares(columns: StepColumns, start_ns: Floats, interval_ns: Floats, run: Floats) -> Matrix:
    """How busy the device was around each step; ``run`` numbers stretches of steps that came one after the other.

    Of a step in no stretch (-1) nothing is known.
    """
    device, shares = columns.device_ns(), unknown_shares(len(run))
    busy = np.where(np.isfinite(device), device, interval_ns) * (columns.numbers("prefill_tokens") > 0)
    for number in np.unique(run[run >= 0]):
        rows = run == number
        shares[rows] = recent_shares(start_ns[rows], interval_ns[rows], busy[rows])
    return shares


def _index_within(groups: Floats) -> Floats:
    """The index of each row among the rows of its group, in file order."""
    index = np.empty(len(groups))
    for group in np.unique(groups):
        rows = groups == group
        index[rows] = np.arange(rows.sum())
    return index


def _shapes(columns: StepColumns, interval_ns: Floats, shape: Floats, rows: Bools) -> MeasuredSteps:
    """One row per shape among ``rows``: medians over its repeats, and how far these are spread.

    Repeats into which other numbers of requests enter are shapes of their own, on the same side of the split.
    """
    import pandas as pd

    device = columns.device_ns()
    judged = np.where(np.isfinite(device), device, interval_ns)
    table = pd.DataFrame({"shape": shape, "interval": interval_ns, "device": device, "judged": judged})[rows]
    groups = table.groupby("shape", sort=True)
    middle = groups.median()
    off = (table["judged"] / groups["judged"].transform("median") - 1).abs()
    spread = 100 * off.groupby(table["shape"]).mean()
    first = groups.head(1).sort_values("shape").index.to_numpy()
    features = {name: column[first] for name, column in columns.counts().items()}
    once = groups.size().to_numpy() < 2
    return MeasuredSteps(
        features=features,
        modes=columns.modes()[first],
        interval_ns=middle["interval"].to_numpy(),
        device_ns=middle["device"].to_numpy(),
        in_loop=np.zeros(len(first), dtype=bool),
        held_out=held_out_shapes(list(zip(*(features[name] for name in SHAPE), strict=True))),
        spread_percent=np.where(once, np.nan, spread.to_numpy()),
        shares=unknown_shares(len(first)),
    )
