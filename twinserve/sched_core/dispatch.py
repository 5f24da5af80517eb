"""Which CUDA graph a step runs in: one pure function, asked by the engine and by the cost model."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

GraphSupport = Literal["none", "decode", "mixed"]
"""Which steps an attention kernel can be captured for: none, those of single-token rows only, or any."""


class GraphMode(StrEnum):
    """How a step is launched: kernel by kernel, or as a graph captured for decodes or for steps of any shape."""

    EAGER = "eager"
    DECODE = "decode"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSizes:
    """Ascending token counts for which graphs exist: steps of single-token rows only, and steps of any shape."""

    decode: tuple[int, ...] = ()
    mixed: tuple[int, ...] = ()


NO_GRAPHS = CaptureSizes()


class Dispatch(NamedTuple):
    """How a step runs: the kind of graph and the token count after padding."""

    mode: GraphMode
    num_padded_tokens: int


def dispatch(num_tokens: int, num_rows: int, capture_sizes: CaptureSizes) -> Dispatch:
    """The smallest captured graph that holds the step, or eager when none does.

    A step of single-token rows (``num_tokens == num_rows``) prefers a decode graph; any other step, or a decode
    batch larger than every decode graph, takes a mixed graph if there is one large enough.
    """
    if num_tokens == num_rows:
        size = _smallest_at_least(capture_sizes.decode, num_tokens)
        if size is not None:
            return Dispatch(mode=GraphMode.DECODE, num_padded_tokens=size)
    size = _smallest_at_least(capture_sizes.mixed, num_tokens)
    if size is not None:
        return Dispatch(mode=GraphMode.MIXED, num_padded_tokens=size)
    return Dispatch(mode=GraphMode.EAGER, num_padded_tokens=num_tokens)


def default_capture_sizes(graph_support: GraphSupport, max_num_seqs: int, max_num_batched_tokens: int) -> CaptureSizes:
    """The graphs that an engine captures when none are asked for.

    Decode graphs for 1, 2, 4, 8 and every multiple of 16 sequences up to 512; mixed graphs in coarser token buckets up
    to 1024. The last size of each list is the most that a step can hold, if that is less. Larger steps gain nothing:
    the device is then busy for longer than the launches take, and padding costs more than it saves.
    """
    if graph_support == "none":
        return NO_GRAPHS
    most_decodes = min(max_num_seqs, max_num_batched_tokens, 512)
    decode = _up_to(most_decodes, [1, 2, 4, 8, *range(16, most_decodes, 16)])
    if graph_support == "decode":
        return CaptureSizes(decode=decode)
    most_tokens = min(max_num_batched_tokens, 1024)
    mixed = _up_to(most_tokens, [16, 32, *range(64, 256, 32), *range(256, most_tokens, 64)])
    return CaptureSizes(decode=decode, mixed=mixed)


def _up_to(most: int, sizes: list[int]) -> tuple[int, ...]:
    return (*(size for size in sizes if size < most), most)


def _smallest_at_least(sizes: tuple[int, ...], wanted: int) -> int | None:
    index = bisect_left(sizes, wanted)
    return sizes[index] if index < len(sizes) else None
