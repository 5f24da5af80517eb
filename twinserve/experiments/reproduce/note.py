"""Simulates the note's four runs from the packaged configurations."""

from __future__ import annotations

from twinserve.experiments.config.load import load_experiment
from twinserve.experiments.reproduce.comparison import Comparison, compare
from twinserve.experiments.reproduce.published import NOTE
from twinserve.experiments.run import build_requests, run_backend

MAX_MEAN_ERROR = 0.025
MAX_ERROR = 0.10


def reproduce_note() -> tuple[Comparison, ...]:
    """Every published run beside its simulation.

    Raises:
        ConfigError: a shipped configuration or calibration is missing or wrong.
    """
    return tuple(_reproduce(run) for run in NOTE)


def is_reproduced(comparison: Comparison) -> bool:
    """Whether a run meets the bounds: mean absolute log error at most 2.5 %, no figure off by more than 10 %."""
    return comparison.mean_abs_log_error <= MAX_MEAN_ERROR and comparison.largest_error <= MAX_ERROR


def _reproduce(run: str) -> Comparison:
    experiment = load_experiment(f"note_4090/{run}")
    finished = run_backend(experiment, build_requests(experiment), check=False, on_progress=None)
    return compare(run, NOTE[run], finished.record)
