"""Titles and axis labels in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

TITLE_KEYS = ("model.name", "sim.cost_model.hardware", "workload.kind", "engine.policy")

LABELS = {
    "engine.policy": "policy",
    "engine.order": "order",
    "engine.max_num_batched_tokens": "token budget (tokens per step)",
    "engine.max_num_seqs": "running requests allowed",
    "engine.enable_chunked_prefill": "chunked prefill",
    "engine.enable_prefix_caching": "prefix caching",
    "engine.long_prefill_token_threshold": "long-prefill threshold (tokens)",
    "engine.num_gpu_blocks_override": "KV blocks",
    "workload.arrival.request_rate": "request rate (requests/s)",
    "workload.max_concurrency": "concurrent requests allowed",
    "model.name": "model",
    "backend": "backend",
}


def run_title(config: Mapping[str, Any], leave_out: Collection[str] = ()) -> str:
    """``Qwen3-8B, rtx-4090, note_bench, mixed``: what is known of model, GPU, workload and policy."""
    values = [lookup(config, key) for key in TITLE_KEYS if key not in leave_out]
    return ", ".join(str(value).rsplit("/", 1)[-1] for value in values if isinstance(value, str))


def lookup(config: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, None where there is none."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def key_label(key: str) -> str:
    """A configuration key in words, with its unit where it is known."""
    return LABELS.get(key, key.rsplit(".", 1)[-1].replace("_", " "))


def value_label(key: str, value: Any) -> str:
    """``mixed``, ``chunked prefill on``, ``max num seqs 64``: a value that needs no key beside it."""
    if isinstance(value, bool) or str(value) in ("True", "False"):
        return f"{key_label(key)} {'on' if str(value) == 'True' else 'off'}"
    if isinstance(value, int | float):
        return f"{key_label(key).split(' (')[0]} {value:g}"
    return str(value)
