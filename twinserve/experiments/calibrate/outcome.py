"""Fits a calibration to folders and collects everything that its report shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from twinserve.experiments.calibrate.facts import Source, check_agreement
from twinserve.experiments.calibrate.readers import read_source
from twinserve.experiments.errors import ConfigError
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.calibration.values import Calibration
from twinserve.sim_backend.fitting.accuracy import Judged, judge
from twinserve.sim_backend.fitting.fit import TooFewStepsError, fit_calibration
from twinserve.sim_backend.fitting.level import at_loop_level
from twinserve.sim_backend.fitting.measured import MeasuredSteps, join
from twinserve.sim_backend.fitting.terms import MIN_STEPS
from twinserve.sim_backend.fitting.throttle_fit import fit_throttles

HELD_OUT = "held out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A calibration and its errors: on what was fitted, on what was held out, and on whole runs that were not fitted.

    ``held_out`` maps names to steps that no fit has seen, ``judged`` are those whose error the file carries.
    """

    calibration: Calibration
    steps: MeasuredSteps
    fitted: Judged
    held_out: dict[str, Judged]
    judged: Judged
    notes: tuple[str, ...]


def calibrate(folders: Sequence[Path], held_out: Sequence[Path] = (), num_blocks: int | None = None) -> Outcome:
    """Fit a calibration to all ``folders``; ``held_out`` are folders that it is only judged on.

    ``num_blocks`` replaces the KV pool of the folders. Otherwise it is that of the smallest one.

    Raises:
        ConfigError: a folder is wrong, they are of different engines, or there are too few steps.
    """
    _check_distinct([*folders, *held_out])
    sources = [read_source(folder, num_blocks) for folder in folders]
    judges = [read_source(folder, num_blocks) for folder in held_out]
    check_agreement([source.facts for source in (*sources, *judges)])
    measured = join([source.steps for source in sources])
    throttles = fit_throttles(measured)
    steps, levels = at_loop_level(measured, throttles)
    smallest = min((source.facts.engine for source in sources), key=lambda engine: engine.num_blocks)
    try:
        calibration = fit_calibration(smallest, steps, _origin(sources, judges), throttles)
    except TooFewStepsError as error:
        raise ConfigError(str(error), file=", ".join(str(folder) for folder in folders)) from error
    split = judge(calibration, steps.where(steps.held_out))
    runs = {_short(source.facts.folder): judge(calibration, source.steps) for source in judges}
    judged = judge(calibration, join([source.steps for source in judges])) if judges else split
    return Outcome(
        calibration=replace(calibration, held_out=judged.error()),
        steps=steps,
        fitted=judge(calibration, steps.where(~steps.held_out)),
        held_out={HELD_OUT: split, **runs},
        judged=judged,
        notes=(
            *(note for source in sources for note in source.notes),
            *_levels(levels),
            *_left_out(steps, calibration),
        ),
    )


def spread_of(steps: MeasuredSteps) -> float | None:
    """The mean spread of repeats in percent, None where nothing was repeated."""
    known = steps.spread_percent[np.isfinite(steps.spread_percent)]
    return float(known.mean()) if len(known) else None


def _short(folder: Path) -> str:
    return "/".join(folder.resolve().parts[-2:])


def _check_distinct(folders: Sequence[Path]) -> None:
    """A folder given twice would count twice, or be judged on what it was fitted to."""
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise ConfigError("is given twice; fit it or hold it out, once", file=folder)
        seen.add(folder.resolve())


def _levels(factors: Mapping[GraphMode, float]) -> list[str]:
    ratios = ", ".join(f"{mode} x {factor:.3f}" for mode, factor in factors.items())
    return [f"shapes launched alone were brought to the speed of steps in a loop: {ratios}"] if factors else []


def _left_out(steps: MeasuredSteps, calibration: Calibration) -> list[str]:
    seen = sorted(set(steps.modes.tolist()) - {str(mode) for mode in calibration.modes})
    notes = [f"fewer than {MIN_STEPS} {mode} steps: the calibration has no terms for them" for mode in seen]
    return notes if steps.held_out.any() else [*notes, "nothing was held out: there are too few steps"]


def _origin(sources: Sequence[Source], judges: Sequence[Source]) -> str:
    apart = ", ".join(judged.origin for judged in judges)
    what = f"on {apart}, none of which was fitted" if judges else "on about a fifth of them, which was not fitted"
    timed = sources[0].facts.timed
    how = (
        "device times, and the host gap to the rest of each interval" if timed else "whole intervals (no device times)"
    )
    fitted = ", ".join(source.origin for source in sources)
    return f"`twinserve calibrate`: terms fitted to {how}, of {fitted}. held_out is the error {what}."
