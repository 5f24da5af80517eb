"""What each attention backend can serve and needs: the one place that says so, and no torch to read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

from twinserve.sched_core.dispatch import GraphSupport

AttentionBackendName: TypeAlias = Literal["auto", "fa3", "fa2", "torch_varlen", "triton", "sdpa"]
"""What a configuration may ask for; ``auto`` takes the first of ``ATTENTION_BACKENDS`` that can serve."""

_HALF_PRECISION = ("float16", "bfloat16")
_POWERS_OF_TWO = (16, 32, 64, 128, 256)
_FA2_HEAD_SIZES = tuple(range(8, 257, 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFacts:
    """One backend.

    ``implementation`` is its module in this package and its class. ``graph_support`` says which CUDA graphs may contain
    it: none, of decode rows only, or of any rows. The block size must be a multiple of ``page_multiple``. ``dtypes``
    and ``head_sizes`` are what its kernels compute, None for any. ``needs`` are modules that must be importable, with
    an attribute after a colon where they must have it; ``capability`` is the one compute capability of a GPU that will
    do, None for any. Only ``on_cpu`` ones run without a GPU.
    """

    implementation: str
    graph_support: GraphSupport
    page_multiple: int = 1
    dtypes: tuple[str, ...] | None = None
    head_sizes: tuple[int, ...] | None = None
    needs: tuple[str, ...] = ()
    capability: tuple[int, int] | None = None
    on_cpu: bool = False

    def refusal(self, *, device: str, dtype: str, block_size: int, head_size: int | None = None) -> str | None:
        """Why it cannot serve this kind of device ("cuda", "cpu"), type and sizes, in words for the user.

        None when it can, as far as is known without the device. ``head_size`` None is not checked.
        """
        if device == "cpu" and not self.on_cpu:
            return "it needs a CUDA device"
        if self.dtypes is not None and dtype not in self.dtypes:
            return f"it computes in {' and '.join(self.dtypes)}, not {dtype}"
        if block_size % self.page_multiple:
            return f"block_size must be a multiple of {self.page_multiple} (is {block_size})"
        if self.head_sizes is not None and head_size is not None and head_size not in self.head_sizes:
            first, second, *_, last = self.head_sizes
            return f"the model's head size must be one of {first}, {second}, ..., {last} (is {head_size})"
        return None


ATTENTION_BACKENDS: Mapping[str, AttentionFacts] = MappingProxyType(
    {
        "fa3": AttentionFacts(
            implementation="fa3:Fa3Backend",
            graph_support="mixed",
            dtypes=_HALF_PRECISION,
            head_sizes=_POWERS_OF_TWO,  # those of the Triton kernel that serves its decode rows
            needs=("flash_attn_interface",),
            capability=(9, 0),
        ),
        "fa2": AttentionFacts(
            implementation="fa2:Fa2Backend",
            graph_support="decode",
            page_multiple=256,
            dtypes=_HALF_PRECISION,
            head_sizes=_FA2_HEAD_SIZES,
            needs=("flash_attn",),
        ),
        "torch_varlen": AttentionFacts(
            implementation="torch_varlen:TorchVarlenBackend",
            graph_support="decode",
            page_multiple=256,
            dtypes=_HALF_PRECISION,
            head_sizes=_FA2_HEAD_SIZES,
            needs=("torch.nn.attention.varlen:varlen_attn_out",),  # torch >= 2.12
        ),
        "triton": AttentionFacts(
            implementation="triton_backend:TritonBackend",
            graph_support="mixed",
            head_sizes=_POWERS_OF_TWO,
            needs=("triton",),
        ),
        "sdpa": AttentionFacts(implementation="sdpa:SdpaBackend", graph_support="none", on_cpu=True),
    }
)
"""By name, fastest first as measured on an H200; ``sdpa`` works everywhere and is the CPU's only choice."""


def expected_graph_support(name: AttentionBackendName) -> GraphSupport:
    """The graphs of a backend that was asked for by ``name``; ``auto`` is taken to find one without limits."""
    return "mixed" if name == "auto" else ATTENTION_BACKENDS[name].graph_support


def refusal_line(name: str, reason: str) -> str:
    """The error for a backend that was asked for and cannot serve."""
    return f"{name} cannot be used: {reason}; auto takes one that can"
