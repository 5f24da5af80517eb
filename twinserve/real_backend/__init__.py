"""Qwen3 on a GPU, driven by the same scheduler core as the simulator.

``LLM`` and ``SamplingParams`` generate text offline; ``build.py`` runs experiments. torch is imported only
when one of them is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinserve.real_backend.errors import EngineError
from twinserve.real_backend.sampling.sampling_params import SamplingParams

if TYPE_CHECKING:
    from twinserve.real_backend.llm import LLM

__all__ = ["LLM", "EngineError", "SamplingParams"]


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from twinserve.real_backend.llm import LLM

        return LLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
