"""Reads LLMServingSim's measured run of vLLM 0.19.0 with Llama-3.1-8B on an RTX 4090 (MIT)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.workloads.formats.reading import read_json_lines, seconds, whole_number
from twinserve.sim_backend.arrays import Floats

MEASURED, KERNELS = "RTX4090_Llama-3.1-8B", "profile_RTX4090_Llama-3.1-8B"


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Per request in order of arrival: when it was queued, its first and last token (s, one clock), output tokens."""

    queued: Floats
    first: Floats
    last: Floats
    num_tokens: Floats

    @property
    def latencies(self) -> Mapping[str, Floats]:
        """``ttft``, ``tpot`` and ``e2el`` in milliseconds."""
        ttft, e2el = 1e3 * (self.first - self.queued), 1e3 * (self.last - self.queued)
        return {"ttft": ttft, "tpot": (e2el - ttft) / np.maximum(self.num_tokens - 1, 1), "e2el": e2el}

    def of(self, requests: slice) -> RequestTimes:
        return RequestTimes(self.queued[requests], self.first[requests], self.last[requests], self.num_tokens[requests])


def read_measured(data: Path) -> RequestTimes:
    """The measured times below ``data``.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    names = ("queued_ts", "first_token_ts", "last_token_ts")
    rows = read_json_lines(requests_file(data), {**dict.fromkeys(names, seconds), "output_toks": whole_number})
    return RequestTimes(*(np.array(column, dtype=np.float64) for column in rows.columns.values()))


def read_num_blocks(data: Path) -> int:
    """KV blocks of the measured engine.

    Raises:
        ConfigError: meta.json is missing or wrong.
    """
    path = data / MEASURED / "meta.json"
    try:
        meta: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return int(meta["kv_cache"]["num_gpu_blocks"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"cannot be read ({error}); --data is the folder with {MEASURED}", file=path) from error


def requests_file(data: Path) -> Path:
    return data / MEASURED / "requests.jsonl"
