"""Measured steps of one folder, with what is known of the engine that took them."""

from __future__ import annotations

from dataclasses import dataclass

from twinserve.experiments.calibrate.facts import Facts
from twinserve.sim_backend.fitting.measured import MeasuredSteps


@dataclass(frozen=True, slots=True)
class Source:
    """What a folder holds; ``words`` says it in an origin, ``notes`` is what its reader wants the user to know."""

    facts: Facts
    steps: MeasuredSteps
    words: str
    notes: tuple[str, ...] = ()
