"""The contents of ``result.json``: settings and figures of a run, without any clock reading."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinserve.experiments.backends.backend_run import BackendRun
from twinserve.experiments.config.combinations import combination_warnings
from twinserve.experiments.config.experiment import ExperimentConfig
from twinserve.experiments.config.policies import names_of
from twinserve.experiments.metrics import compute_metrics
from twinserve.experiments.workloads import Workload


def make_result(config: ExperimentConfig, run_id: str, workload: Workload, run: BackendRun) -> dict[str, Any]:
    """The result of a finished run."""
    num_prompts = len(workload.requests)
    figures = compute_metrics(run.record, config.metrics, num_prompts=num_prompts, num_blocks=run.blocks.count)
    impossible = combination_warnings(config.engine, run.blocks.count, workload)
    warnings = [*workload.warnings, *impossible, *run.warnings, *figures.pop("warnings", ())]
    return {**_description(config, run_id, workload, run), **figures, "warnings": warnings}


def _description(config: ExperimentConfig, run_id: str, workload: Workload, run: BackendRun) -> dict[str, Any]:
    engine = config.engine
    return {
        "run_id": run_id,
        "label": config.name,
        "seed": config.seed,
        "repeat": config.repeat,
        "backend": config.backend,
        "model_id": config.model.name,
        "policy": names_of(engine)["policy"],
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "max_num_seqs": engine.max_num_seqs,
        "num_blocks": run.blocks.count,
        "num_blocks_source": run.blocks.source,
        "block_size": engine.block_size,
        "request_rate": _arrival(config).get("request_rate"),
        "burstiness": _arrival(config).get("burstiness"),
        "max_concurrency": workload.max_concurrency,
        "workload": dict(workload.info),
    }


def _arrival(config: ExperimentConfig) -> Mapping[str, Any]:
    arrival = config.workload.model_dump().get("arrival")
    return arrival if isinstance(arrival, Mapping) else {}
