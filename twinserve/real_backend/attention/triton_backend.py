"""Our own paged attention in Triton: any batch, any page size, no package beyond torch's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from twinserve.real_backend.attention.base import AttentionMetadata, AttentionShape
from twinserve.real_backend.attention.tile_sizes import TileSizes, num_multiprocessors
from twinserve.real_backend.attention.triton_decode import TritonDecode
from twinserve.real_backend.kernels.triton_prefill import prefill_kernel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrefillTiles:
    """Tile ``i`` holds queries ``starts[i]`` onwards of row ``rows[i]`` (int32); rows past the last are padding."""

    block_m: int
    rows: torch.Tensor
    starts: torch.Tensor


class TritonBackend:
    """Decode rows and prefill rows as two kernels, told apart on the device in a mixed graph."""

    name = "triton"

    def __init__(self, shape: AttentionShape, tile_sizes: TileSizes | None = None) -> None:
        self._shape = shape
        self._sizes = tile_sizes or TileSizes.of_device(shape.device)
        self._group = shape.num_heads // shape.num_kv_heads
        self._scale_log2 = shape.head_dim**-0.5 * math.log2(math.e)
        self._num_sms = num_multiprocessors(shape.device)
        self._decode = TritonDecode(shape, self._sizes)
        self._meta: AttentionMetadata | None = None
        self._tiles: PrefillTiles | None = None

    def begin_step(self, meta: AttentionMetadata) -> None:
        self._meta = meta
        has_prefills = meta.num_decodes < meta.num_rows
        self._tiles = prefill_tiles(meta, self._block_m(meta), self._group) if has_prefills else None

    def forward(self, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, out: torch.Tensor) -> None:
        meta = self._meta
        if meta is None:
            raise RuntimeError("forward before begin_step")
        num_decode_rows = meta.num_rows if meta.mixed_graph else meta.num_decodes  # in a mixed graph any may be one
        if num_decode_rows:
            self._decode.forward(meta, num_decode_rows, q, k_cache, v_cache, out)
        if self._tiles is not None:
            self._prefill(meta, self._tiles, q, k_cache, v_cache, out)

    def _block_m(self, meta: AttentionMetadata) -> int:
        num_lines = (len(meta.slot_mapping) - meta.num_decode_tokens) * self._shape.num_heads
        is_small = num_lines // self._sizes.block_m < self._num_sms // 2
        return self._sizes.small_block_m if is_small else self._sizes.block_m

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
