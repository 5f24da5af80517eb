"""Our own paged attention in Triton: any batch, any page size, no package beyond torch's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton

from real_backend.attention.base import AttentionMetadata, AttentionShape
from real_backend.kernels.triton_decode import combine_kernel, decode_kernel
from real_backend.kernels.triton_prefill import prefill_kernel
from sched_core.dispatch import GraphSupport

_MAX_SPLITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TileSizes:
    """How the kernels cut their work.

    ``block_m`` query lines (``small_block_m`` where that would leave half the GPU idle) by ``block_n`` keys in a
    prefill tile, ``decode_block_n`` keys in a step of a decode row; stages are copies in flight.
    """

    block_m: int
    small_block_m: int
    block_n: int
    prefill_stages: int
    decode_block_n: int
    decode_stages: int

    @classmethod
    def of_device(cls, device: torch.device) -> TileSizes:
        """From sm_90 on an SM has twice the shared memory of an sm_89, where the tiles must fit in 99 KiB."""
        is_roomy = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9
        if is_roomy:
            return cls(block_m=128, small_block_m=64, block_n=64, prefill_stages=3, decode_block_n=64, decode_stages=3)
        return cls(block_m=128, small_block_m=64, block_n=64, prefill_stages=2, decode_block_n=32, decode_stages=3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefillTiles:
    """Tile ``i`` holds queries ``starts[i]`` onwards of row ``rows[i]`` (int32); rows past the last are padding."""

    block_m: int
    rows: torch.Tensor
    starts: torch.Tensor


class TritonBackend:
    """Decode rows and prefill rows as two kernels, told apart on the device in a mixed graph."""

    name = "triton"
    page_multiple = 1
    graph_support: GraphSupport = "mixed"

    def __init__(self, shape: AttentionShape, tile_sizes: TileSizes | None = None) -> None:
        self._shape = shape
        self._sizes = tile_sizes or TileSizes.of_device(shape.device)
        self._group = shape.num_heads // shape.num_kv_heads
        self._scale_log2 = shape.head_dim**-0.5 * math.log2(math.e)
        self._num_sms = _num_sms(shape.device)
        lines = self._most_programs() // shape.num_kv_heads * shape.num_heads
        self._partial = torch.empty((lines, shape.head_dim), device=shape.device, dtype=torch.float32)
        self._partial_lse = torch.empty(lines, device=shape.device, dtype=torch.float32)
        self._meta: AttentionMetadata | None = None
        self._num_splits = 1
        self._tiles: PrefillTiles | None = None

    def begin_step(self, meta: AttentionMetadata) -> None:
        self._meta = meta
        self._num_splits = self._splits(self._num_decode_rows(meta))
        has_prefills = meta.num_decodes < meta.num_rows
        self._tiles = prefill_tiles(meta, self._block_m(meta), self._group) if has_prefills else None

    def forward(
        self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, layer: int, out: torch.Tensor
    ) -> None:
        del layer
        meta = self._meta
        if meta is None:
            raise RuntimeError("forward before begin_step")
        num_decode_rows = self._num_decode_rows(meta)
        if num_decode_rows:
            self._decode(meta, num_decode_rows, q, k_cache, v_cache, out)
        if self._tiles is not None:
            self._prefill(meta, self._tiles, q, k_cache, v_cache, out)

    @staticmethod
    def _num_decode_rows(meta: AttentionMetadata) -> int:
        """In a mixed graph any row may turn out to be a decode row."""
        return meta.num_rows if meta.mixed_graph else meta.num_decodes

    def _most_programs(self) -> int:
        """Decode programs that keep the GPU busy: splitting stops there, and so does the room for partial results."""
        return 4 * self._num_sms

    def _splits(self, num_rows: int) -> int:
        """Parts of a row; those that a short row does not need end at once."""
        return max(1, min(self._most_programs() // (max(num_rows, 1) * self._shape.num_kv_heads), _MAX_SPLITS))

    def _block_m(self, meta: AttentionMetadata) -> int:
        num_lines = (len(meta.slot_mapping) - meta.num_decode_tokens) * self._shape.num_heads
        is_small = num_lines // self._sizes.block_m < self._num_sms // 2
        return self._sizes.small_block_m if is_small else self._sizes.block_m

    def _decode(
        self,
        meta: AttentionMetadata,
        num_rows: int,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        shape, splits = self._shape, self._num_splits
        decode_kernel[(shape.num_kv_heads, num_rows, splits)](
            q,
            k_cache,
            v_cache,
            out,
            self._partial,
            self._partial_lse,
            meta.cu_seqlens_q,
            meta.seqused_k,
            meta.block_table,
            q.stride(0),
            meta.block_table.stride(0),
            self._scale_log2,
            NUM_KV_HEADS=shape.num_kv_heads,
            GROUP=self._group,
            GROUP_BLOCK=max(16, triton.next_power_of_2(self._group)),
            HEAD_DIM=shape.head_dim,
            PAGE_SIZE=shape.block_size,
            BLOCK_N=self._sizes.decode_block_n,
            IS_SPLIT=splits > 1,
            num_warps=4,
            num_stages=self._sizes.decode_stages,
        )
        if splits > 1:
            self._combine(meta, num_rows, out)

    def _combine(self, meta: AttentionMetadata, num_rows: int, out: torch.Tensor) -> None:
        combine_kernel[(self._shape.num_heads, num_rows)](
            self._partial,
            self._partial_lse,
            out,
            meta.cu_seqlens_q,
            meta.seqused_k,
            self._num_splits,
            NUM_HEADS=self._shape.num_heads,
            HEAD_DIM=self._shape.head_dim,
            BLOCK_N=self._sizes.decode_block_n,
            MAX_SPLITS=_MAX_SPLITS,
            num_warps=4,
        )

    def _prefill(
        self,
        meta: AttentionMetadata,
        tiles: PrefillTiles,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        prefill_kernel[(self._shape.num_kv_heads, len(tiles.rows))](
            q,
            k_cache,
            v_cache,
            out,
            tiles.rows,
            tiles.starts,
            meta.cu_seqlens_q,
            meta.seqused_k,
            meta.block_table,
            q.stride(0),
            meta.block_table.stride(0),
            meta.num_rows,
            self._scale_log2,
            NUM_KV_HEADS=self._shape.num_kv_heads,
            GROUP=self._group,
            HEAD_DIM=self._shape.head_dim,
            PAGE_SIZE=self._shape.block_size,
            BLOCK_M=tiles.block_m,
            BLOCK_N=self._sizes.block_n,
            num_warps=8 if tiles.block_m >= 128 else 4,
            num_stages=self._sizes.prefill_stages,
        )


def prefill_tiles(meta: AttentionMetadata, block_m: int, group: int) -> PrefillTiles:
    """Cuts the rows after the decode rows into tiles of ``block_m // group`` queries, on the device.

    In a mixed graph rows of one token are left to the decode kernel. The number of tiles is an upper bound that the
    host knows. They are listed from the last to the first, so that those with most keys before them start first.
    """
    queries, first = block_m // group, meta.num_decodes
    num_new = meta.cu_seqlens_q[first:].diff()
    num_rows, num_tokens = len(num_new), len(meta.slot_mapping) - meta.num_decode_tokens
    tiles_of_row = (num_new + (queries - 1)) // queries
    if meta.mixed_graph:
        tiles_of_row = torch.where(num_new > 1, tiles_of_row, 0)
    ends = tiles_of_row.cumsum(0, dtype=torch.int32)
    num_tiles = num_tokens // queries + min(num_rows, num_tokens)
    tile_ids = torch.arange(num_tiles - 1, -1, -1, device=ends.device, dtype=torch.int32)
    rows = torch.searchsorted(ends, tile_ids, out_int32=True, right=True)
    firsts = (ends - tiles_of_row)[rows.clamp(max=num_rows - 1)]
    return PrefillTiles(block_m=block_m, rows=rows + first, starts=(tile_ids - firsts) * queries)


def _num_sms(device: torch.device) -> int:
    if device.type != "cuda":
        return 8  # Triton's interpreter: any number does
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
