"""Which attention backend serves a model on a device: the first usable one, or the one that was asked for."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable

import torch

from twinserve.real_backend.attention.base import AttentionBackend, AttentionShape
from twinserve.real_backend.errors import EngineError

_logger = logging.getLogger(__name__)

_KEY = "real.attention_backend"

# Fastest first, as measured on an H200; ``sdpa`` works everywhere and is the CPU's only choice.
_PREFERENCE = ("fa3", "fa2", "torch_varlen", "triton", "sdpa")


def make_attention_backend(name: str, shape: AttentionShape) -> AttentionBackend:
    """The backend called ``name``, or with ``auto`` the first of fa3, fa2, torch_varlen, triton, sdpa that can serve.

    The choice and its reasons are logged. Raises ``EngineError`` for an unknown name and for a backend that cannot
    serve the device, type or block size.
    """
    if name == "auto":
        return _first_usable(shape)
    if name not in _PREFERENCE:
        problem = f"{name!r} is not known; use auto or one of {', '.join(_PREFERENCE)}"
        raise EngineError(problem, key=_KEY)
    reason = _unusable_reason(name, shape)
    if reason is not None:
        raise EngineError(f"{name} cannot be used: {reason}; auto takes one that can", key=_KEY)
    _logger.info("attention backend %s, as asked for", name)
    return _build(name, shape)


def _first_usable(shape: AttentionShape) -> AttentionBackend:
    passed_over: list[str] = []
    for name in _PREFERENCE:
        reason = _unusable_reason(name, shape)
        if reason is None:
            _logger.info("attention backend %s, chosen automatically (%s)", name, "; ".join(passed_over) or "fastest")
            return _build(name, shape)
        passed_over.append(f"not {name}: {reason}")
    raise EngineError(f"none can be used ({'; '.join(passed_over)})", key=_KEY)


def _unusable_reason(name: str, shape: AttentionShape) -> str | None:
    """Why the backend cannot serve, in words for the user; None when it can."""
    if name == "sdpa":
        return None
    if shape.device.type != "cuda":
        return "it needs a CUDA device"
    if name == "triton":
        return _import_error("triton")
    if shape.dtype not in (torch.float16, torch.bfloat16):
        return f"it computes in float16 and bfloat16, not {str(shape.dtype).removeprefix('torch.')}"
    if name in ("fa2", "torch_varlen") and shape.block_size % 256:
        return f"block_size must be a multiple of 256 (is {shape.block_size})"
    checks: dict[str, Callable[[AttentionShape], str | None]] = {
        "fa2": lambda _: _import_error("flash_attn"),
        "fa3": _fa3_reason,
        "torch_varlen": lambda _: _torch_varlen_reason(),
    }
    return checks[name](shape)


def _fa3_reason(shape: AttentionShape) -> str | None:
    major, minor = torch.cuda.get_device_capability(shape.device)
    if (major, minor) != (9, 0):
        return f"it needs a Hopper GPU (sm_90, this one is sm_{major}{minor})"
    return _import_error("flash_attn_interface")


def _torch_varlen_reason() -> str | None:
    reason = _import_error("torch.nn.attention.varlen")
    if reason is not None:
        return reason
    varlen = importlib.import_module("torch.nn.attention.varlen")
    return None if hasattr(varlen, "varlen_attn_out") else f"it needs torch >= 2.12 (this is {torch.__version__})"


def _import_error(module: str) -> str | None:
    try:
        importlib.import_module(module)
    except (ImportError, OSError) as error:  # OSError: a library built for another torch or CUDA
        return f"{module} cannot be imported ({error})"
    return None


def _build(name: str, shape: AttentionShape) -> AttentionBackend:
    modules = {
        "sdpa": ("sdpa", "SdpaBackend"),
        "fa2": ("fa2", "Fa2Backend"),
        "fa3": ("fa3", "Fa3Backend"),
        "torch_varlen": ("torch_varlen", "TorchVarlenBackend"),
        "triton": ("triton_backend", "TritonBackend"),
    }
    module, class_name = modules[name]
    backend: AttentionBackend = getattr(
        importlib.import_module(f"twinserve.real_backend.attention.{module}"), class_name
    )(shape)
    return backend
