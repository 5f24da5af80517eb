"""Which attention backend serves a model on a device: the first usable one, or the one that was asked for."""

from __future__ import annotations

import importlib
import logging

import torch

from twinserve.real_backend.attention.base import AttentionBackend, AttentionShape
from twinserve.real_backend.attention.facts import ATTENTION_BACKENDS, refusal_line
from twinserve.real_backend.errors import EngineError

_logger = logging.getLogger(__name__)

_KEY = "real.attention_backend"


def make_attention_backend(name: str, shape: AttentionShape) -> AttentionBackend:
    """The backend called ``name``, or with ``auto`` the first of ``ATTENTION_BACKENDS`` that can serve.

    The choice and its reasons are logged. Raises ``EngineError`` for an unknown name and for a backend that cannot
    serve the device, type, head size or block size.
    """
    if name == "auto":
        return _first_usable(shape)
    if name not in ATTENTION_BACKENDS:
        problem = f"{name!r} is not known; use auto or one of {', '.join(ATTENTION_BACKENDS)}"
        raise EngineError(problem, key=_KEY)
    reason = _unusable_reason(name, shape)
    if reason is not None:
        raise EngineError(refusal_line(name, reason), key=_KEY)
    _logger.info("attention backend %s, as asked for", name)
    return _build(name, shape)


def _first_usable(shape: AttentionShape) -> AttentionBackend:
    passed_over: list[str] = []
    for name in ATTENTION_BACKENDS:
        reason = _unusable_reason(name, shape)
        if reason is None:
            _logger.info("attention backend %s, chosen automatically (%s)", name, "; ".join(passed_over) or "fastest")
            return _build(name, shape)
        passed_over.append(f"not {name}: {reason}")
    raise EngineError(f"none can be used ({'; '.join(passed_over)})", key=_KEY)


def _unusable_reason(name: str, shape: AttentionShape) -> str | None:
    """Why the backend cannot serve, in words for the user; None when it can."""
    facts = ATTENTION_BACKENDS[name]
    reason = facts.refusal(
        device=shape.device.type,
        dtype=str(shape.dtype).removeprefix("torch."),
        block_size=shape.block_size,
        head_size=shape.head_dim,
    )
    if reason is None and facts.capability is not None:
        reason = _capability_reason(facts.capability, shape.device)
    problems = (_missing(need) for need in facts.needs)
    return reason or next(filter(None, problems), None)


def _capability_reason(wanted: tuple[int, int], device: torch.device) -> str | None:
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) == wanted:
        return None
    return f"it needs a GPU of sm_{wanted[0]}{wanted[1]} (this one is sm_{major}{minor})"


def _missing(need: str) -> str | None:
    name, _, attribute = need.partition(":")
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError) as error:  # OSError: a library built for another torch or CUDA
        return f"{name} cannot be imported ({error})"
    if attribute and not hasattr(module, attribute):
        return f"{name} has no {attribute}, it is too old (torch is {torch.__version__})"
    return None


def _build(name: str, shape: AttentionShape) -> AttentionBackend:
    module, _, class_name = ATTENTION_BACKENDS[name].implementation.partition(":")
    imported = importlib.import_module(f"twinserve.real_backend.attention.{module}")
    backend: AttentionBackend = getattr(imported, class_name)(shape)
    return backend
