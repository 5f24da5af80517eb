"""Qwen3 on a GPU, driven by the same scheduler core as the simulator.

``LLM`` and ``SamplingParams`` generate text offline; ``real_backend.build`` runs experiments. torch is imported only
when one of them is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from real_backend.errors import EngineError
from real_backend.sampling_params import SamplingParams

if TYPE_CHECKING:
    from real_backend.llm import LLM

__all__ = ["LLM", "EngineError", "SamplingParams"]


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from real_backend.llm import LLM

        return LLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
