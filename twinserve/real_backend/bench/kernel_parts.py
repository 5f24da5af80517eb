"""Which part of a step a kernel belongs to, by its name and its place."""

from __future__ import annotations

import re
from collections.abc import Sequence

from twinserve.real_backend.bench.results import Part

# In this order: FlashAttention 3 is built from CUTLASS, and so has the word in its kernels' names.
_PATTERNS: tuple[tuple[Part, re.Pattern[str]], ...] = (
    ("sampling", re.compile(r"_best_of_part|_best_part|sampl|argmax", re.IGNORECASE)),
    ("attention", re.compile(r"flash|fmha|attention|attn|(prefill|decode|combine)\w*_kernel", re.IGNORECASE)),
    ("pointwise", re.compile(r"rms_?norm|silu|swiglu|rope|rotary|layer_?norm|expand_kernel", re.IGNORECASE)),
    ("gemm", re.compile(r"nvjet|gemm|gemv|cutlass|xmma|cublas|splitk|matmul|linear_kernel", re.IGNORECASE)),
)


def part_of(name: str) -> Part:
    """The part of one kernel by its name; a matrix product is ``gemm`` wherever it is, what is unknown ``other``."""
    for part, pattern in _PATTERNS:
        if pattern.search(name):
            return part
    return "other"


def parts_of(names: Sequence[str]) -> list[Part]:
    """The parts of kernels in the order in which they ran.

    The head is a matrix product like any other but for its place: what comes next, copies and the like aside, is
    sampling.
    """
    parts = [part_of(name) for name in names]
    samples_next = False
    for index in range(len(parts) - 1, -1, -1):
        if parts[index] == "gemm" and samples_next:
            parts[index] = "head"
        elif parts[index] not in ("gemm", "other"):
            samples_next = parts[index] == "sampling"
    return parts
