"""An experiment's requests, and their run on the backend that it names."""

from __future__ import annotations

from twinserve.experiments.backends.backend_run import BackendRun, Progress
from twinserve.experiments.backends.real import run_real
from twinserve.experiments.backends.simulated import run_simulated
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.metrics.window import refuse_empty_positions
from twinserve.experiments.workloads import Workload, build_workload


def build_requests(experiment: Experiment) -> Workload:
    """The requests of an experiment, drawn from its seed and repeat.

    Raises:
        ConfigError: an input file is missing or bad, or no request is left, or none that is measured.
    """
    config = experiment.config
    workload = build_workload(
        config.workload,
        seed=config.seed,
        repeat=config.repeat,
        max_model_len=config.engine.max_model_len,
        base_dir=experiment.base_dir,
    )
    refuse_empty_positions(config.metrics, len(workload.requests))
    return workload


def run_backend(experiment: Experiment, workload: Workload, *, check: bool, on_progress: Progress | None) -> BackendRun:
    """Run the workload on the backend that the configuration names.

    Raises:
        ConfigError: something the backend needs is missing or wrong.
    """
    total = len(workload.requests)
    on_ended = None if on_progress is None else lambda done: on_progress(done, total)
    run = run_real if experiment.config.backend == "real" else run_simulated
    return run(experiment, workload, check, on_ended)
