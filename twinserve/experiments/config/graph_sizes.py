"""Which CUDA graphs the engine of a simulated run has."""

from __future__ import annotations

from pathlib import Path

from twinserve.experiments.config.cost_model import known_capture_sizes
from twinserve.experiments.config.engine import EngineSection
from twinserve.experiments.config.experiment import ExperimentConfig
from twinserve.real_backend.attention.facts import expected_graph_support
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes, default_capture_sizes


def simulated_capture_sizes(config: ExperimentConfig, base_dir: Path) -> CaptureSizes:
    """The graphs that the simulated engine runs its steps in.

    None when eager, those that were asked for, those of the calibrated engine; and for a roofline, which prices
    graphs, those that the real engine would choose. Other step times are taken as they were given.
    """
    if config.engine.enforce_eager or config.sim is None:
        return NO_GRAPHS
    asked_for = asked_capture_sizes(config.engine)
    if asked_for is not None:
        return asked_for
    if config.prices_chosen_graphs:
        support = expected_graph_support(config.real.attention_backend)
        return default_capture_sizes(support, config.engine.max_num_seqs, config.engine.max_num_batched_tokens)
    return known_capture_sizes(config.sim.cost_model, base_dir=base_dir)


def asked_capture_sizes(engine: EngineSection) -> CaptureSizes | None:
    """The graphs of ``cuda_graph_sizes``; None leaves them to the engine."""
    sizes = engine.cuda_graph_sizes
    return None if sizes is None else CaptureSizes(decode=sizes.decode, mixed=sizes.mixed)
