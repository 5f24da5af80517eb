"""Published figures of the nano-vllm benchmark on one RTX 4090 (Qwen3-8B, bf16, eager, 256 requests).

Source: "Inside nano-vLLM v1" and its benchmark repository junuxyz/nano-vllm-bench. Names are those of result.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FIGURES = (
    "duration",
    "p50_ttft_ms",
    "p90_ttft_ms",
    "p99_ttft_ms",
    "p50_tpot_ms",
    "p90_tpot_ms",
    "p99_tpot_ms",
    "p50_itl_ms",
    "p90_itl_ms",
    "p99_itl_ms",
)

_VALUES = {
    "nano_rate2": (130.380, 171.69, 364.06, 1188.90, 49.12, 56.76, 63.54, 36.29, 38.00, 337.17),
    "nano_inf": (89.991, 40865.9, 73270.0, 81829.1, 59.67, 64.59, 72.48, 36.27, 126.21, 329.50),
    "v1_rate2": (130.851, 192.06, 353.68, 536.14, 43.97, 47.55, 49.58, 41.23, 57.93, 62.60),
    "v1_inf": (84.315, 37800.3, 67803.8, 75172.1, 50.10, 52.21, 58.31, 42.03, 63.23, 64.51),
}

NOTE: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {run: MappingProxyType(dict(zip(FIGURES, values, strict=True))) for run, values in _VALUES.items()}
)
"""Run (a file of configs/note_4090) -> figure -> published value; duration in s, latencies in ms."""
