"""Published H200 figures of other engines: Qwen3-8B in bfloat16, random weights, the note's 256 requests.

vLLM 0.24.0 (FA3, graphs and torch.compile unless eager), nano-vllm and nano-vllm-v1 (flash-attn 2.8.3), measured on one
H200 on 2026-11-30; docs/results-h200.md has more of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from twinserve.experiments.bench.cases import TAILS, THROUGHPUT
from twinserve.experiments.config.experiment import ExperimentConfig

ENGINES = ("vLLM 0.24", "nano-vllm", "nano-vllm-v1")

_THROUGHPUT = {
    "eager-512": (1392.0, 760.0, 1186.0),
    "graphs-512": (2398.0, 1370.0, None),
    "graphs-8192": (3854.0, 3541.0, None),
}
_TAILS = {
    "rate-512": ((344.6, 21.04, 35.9), (860.0, 89.9, 762.0), None),
    "rate-8192": ((145.4, 19.5, 50.8), (135.0, 34.1, 211.5), None),
}


def _by_figure(names: tuple[str, ...], values: tuple[float, ...] | float) -> Mapping[str, float]:
    return MappingProxyType(dict(zip(names, values if isinstance(values, tuple) else (values,), strict=True)))


PUBLISHED: Mapping[str, Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        row: MappingProxyType(
            {
                engine: _by_figure(figures, value)
                for engine, value in zip(ENGINES, values, strict=True)
                if value is not None
            }
        )
        for figures, table in ((THROUGHPUT, _THROUGHPUT), (TAILS, _TAILS))
        for row, values in table.items()
    }
)
"""Row -> engine -> figure of result.json -> value."""


def is_comparable(config: ExperimentConfig, device: str, model: str) -> bool:
    """Whether the figures were measured on this device, model and workload."""
    workload: dict[str, Any] = config.workload.model_dump()
    same_workload = workload["kind"] == "note_bench" and workload["num_prompts"] == 256
    same_draw = (config.seed, config.repeat) == (0, 0)
    same_model = model.rsplit("/", 1)[-1] == "Qwen3-8B" and config.model.dtype == "bfloat16"
    return "H200" in device and same_model and same_workload and same_draw
