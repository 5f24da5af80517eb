"""Workloads out of keyword arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tests.paths import DATA
from twinserve.experiments.workloads import Workload, WorkloadConfig, build_workload

TINY = DATA / "traces"
POISSON = {"process": "poisson", "request_rate": 5.0}
_READ: TypeAdapter[Any] = TypeAdapter(WorkloadConfig)


def build(
    *, seed: int = 0, repeat: int = 0, max_model_len: int = 1 << 20, base_dir: Path = TINY, **keys: Any
) -> Workload:
    config = _READ.validate_python(keys)
    return build_workload(config, seed=seed, repeat=repeat, max_model_len=max_model_len, base_dir=base_dir)


def synthetic(**keys: Any) -> Workload:
    uniform = {"dist": "uniform", "min": 10, "max": 200}
    return build(
        **{"kind": "synthetic", "num_prompts": 50, "input_len": uniform, "output_len": uniform, "arrival": POISSON}
        | keys
    )


def trace(format: str, path: str, **keys: Any) -> Workload:
    return build(kind="trace", format=format, path=path, **keys)


def arrivals_ns(workload: Workload) -> list[int]:
    return [spec.arrival_ns for spec in workload.requests]


def input_lens(workload: Workload) -> list[int]:
    return [spec.num_prompt_tokens for spec in workload.requests]


def output_lens(workload: Workload) -> list[int]:
    return [workload.output_lens.get(spec.request_id, spec.max_tokens) for spec in workload.requests]
