"""Latency, throughput and scheduler figures, computed from a run's record alone."""

from twinserve.experiments.metrics.compute import SCHEMA_VERSION, compute_metrics
from twinserve.experiments.metrics.latency import Latencies, request_latencies
from twinserve.experiments.metrics.metrics_config import BootstrapConfig, MetricsConfig, SloConfig
from twinserve.experiments.metrics.seeds import SeedMean, aggregate_seeds, mean_over_seeds

__all__ = [
    "SCHEMA_VERSION",
    "BootstrapConfig",
    "Latencies",
    "MetricsConfig",
    "SeedMean",
    "SloConfig",
    "aggregate_seeds",
    "compute_metrics",
    "mean_over_seeds",
    "request_latencies",
]
