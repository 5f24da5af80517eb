"""Workloads: requests and their arrivals, drawn from distributions or read from traces."""

from twinserve.experiments.workloads.build_workload import WorkloadConfig, build_workload, workload_files
from twinserve.experiments.workloads.note_bench import NoteBenchConfig
from twinserve.experiments.workloads.servegen import ServeGenConfig
from twinserve.experiments.workloads.synthetic import SyntheticConfig
from twinserve.experiments.workloads.trace import TraceConfig
from twinserve.experiments.workloads.workload import Workload

__all__ = [
    "NoteBenchConfig",
    "ServeGenConfig",
    "SyntheticConfig",
    "TraceConfig",
    "Workload",
    "WorkloadConfig",
    "build_workload",
    "workload_files",
]
