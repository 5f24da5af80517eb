"""Every packaged experiment as it runs in the simulator: its decisions as a digest, and its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.paths import real_trace
from twinserve.experiments.config.load import Experiment, load_experiment
from twinserve.experiments.files.strict_json import plain
from twinserve.experiments.result import make_result
from twinserve.experiments.run import build_requests, run_backend
from twinserve.experiments.settings.overrides import Override, parse_override
from twinserve.experiments.sweep.points import load_sweep
from twinserve.sched_core.plan import StepPlan

PLAIN = (
    "smoke",
    "note_4090/nano_inf",
    "note_4090/nano_rate2",
    "note_4090/v1_inf",
    "note_4090/v1_rate2",
    "h200/note_qwen3_8b",
)
SWEEPS = ("sweeps/token_budget", "sweeps/long_prefill")
TRACES: Mapping[str, tuple[str, int]] = {
    "traces/azure_conv": ("azure2023/AzureLLMInferenceTrace_conv.csv", 1000),
    "traces/azure_code": ("azure2023/AzureLLMInferenceTrace_code.csv", 1000),
    "traces/mooncake_conversation": ("mooncake/conversation_trace.jsonl", 500),
    "traces/mooncake_synthetic": ("mooncake/synthetic_trace.jsonl", 500),
    "traces/vllm_rtx_4090": ("llmservingsim/RTX4090_Llama-3.1-8B/requests.jsonl", 300),
}
"""The trace file of each configuration, and how many of its requests are run."""
VARIANTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "smoke": (
        ("workload.max_concurrency=8", "engine.num_gpu_blocks_override=60", "engine.scheduler_reserve_full_isl=false"),
        ("engine.policy=static", "engine.order=sjf", "engine.victim=lowest_priority"),
        (
            "engine.policy=decode_first",
            "engine.order=priority",
            "engine.num_gpu_blocks_override=80",
            "engine.watermark=0.05",
        ),
        ("engine.policy=prefill_first", "engine.max_head_bypass=4", "engine.num_gpu_blocks_override=50"),
        ("engine.prefill_schedule_interval=4", "engine.long_prefill_token_threshold=64"),
    ),
}
"""Settings under which a configuration is run besides its own: closed-loop clients, preemptions, other policies."""


def experiments(name: str) -> Iterator[tuple[str, Experiment]]:
    """The experiments of a packaged configuration, labelled: one, or the points of a sweep."""
    if name in SWEEPS:
        for point in load_sweep(name, overrides()).points:
            yield f"{name}: {point.label()}", point.experiment
    elif name in TRACES:
        path, num_prompts = TRACES[name]
        yield (
            name,
            load_experiment(
                name, overrides(f"workload.path={real_trace(path)}", f"workload.num_prompts={num_prompts}")
            ),
        )
    else:
        yield name, load_experiment(name, overrides())
        for settings in VARIANTS.get(name, ()):
            yield f"{name} {' '.join(settings)}", load_experiment(name, overrides(*settings))


def overrides(*settings: str) -> list[Override]:
    return [parse_override(setting) for setting in ("record.decisions=true", *settings)]


def outcome(experiment: Experiment) -> dict[str, Any]:
    """``decisions`` and ``result`` of the simulated experiment, as JSON would hold them."""
    workload = build_requests(experiment)
    run = run_backend(experiment, workload, check=False, on_progress=None)
    result = make_result(experiment.config, "", workload, run)
    del result["run_id"]
    if "path" in result["workload"]:
        result["workload"]["path"] = Path(result["workload"]["path"]).name
    return json.loads(json.dumps(plain({"decisions": digest(run.record.plans), "result": result})))


def digest(plans: Iterable[StepPlan]) -> str:
    """sha256 over what every step decided: rows, tokens, blocks, hits and preemptions."""
    total = hashlib.sha256()
    for plan in plans:
        columns = (plan.request_ids, plan.num_computed, plan.num_new, plan.num_new_blocks, plan.new_block_ids)
        started = [(s.spec.request_id, s.resumed, s.num_cached_tokens, s.block_ids) for s in plan.started]
        counts = (plan.num_samples, plan.num_waiting, plan.num_running, plan.num_free_blocks)
        total.update(repr((plan.step_id, counts, plan.preempted, started, len(plan.request_ids))).encode())
        for column in columns:
            total.update(np.ascontiguousarray(column, dtype=np.int64).tobytes())
    return total.hexdigest()
