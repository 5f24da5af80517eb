"""Workloads: what is asked of the engine, when and by whom, drawn from distributions or read from traces."""

from experiments.workloads.build import WorkloadConfig, build_workload, input_files
from experiments.workloads.note_bench import NoteBenchConfig
from experiments.workloads.servegen import ServeGenConfig
from experiments.workloads.synthetic import SyntheticConfig
from experiments.workloads.trace import TraceConfig
from experiments.workloads.workload import Workload

__all__ = [
    "NoteBenchConfig",
    "ServeGenConfig",
    "SyntheticConfig",
    "TraceConfig",
    "Workload",
    "WorkloadConfig",
    "build_workload",
    "input_files",
]
