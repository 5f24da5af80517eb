"""Our Triton attention against dense attention, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.real_backend.devices import interpreted, on_gpu
from tests.real_backend.paged_batches import PagedBatch, dense_attention, paged_batch
from twinserve.real_backend.attention.base import AttentionShape

# Triton's interpreter turns one-element arrays into scalars, which newer numpy frowns upon.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

on_gpu_or_interpreted = pytest.mark.parametrize(
    "device",
    [
        pytest.param("cpu", marks=interpreted),
        pytest.param("cuda", marks=on_gpu),
    ],
)
MIXED_ROWS = [(1, 1), (1, 33), (1, 200), (2, 2), (17, 17), (40, 130), (1, 64), (5, 70)]


def tiny_tiles(**changes: int) -> Any:
    pytest.importorskip("triton")
    from twinserve.real_backend.attention.triton_backend import TileSizes

    sizes = {"block_m": 32, "small_block_m": 16, "block_n": 16, "decode_block_n": 16}
    return TileSizes(**sizes | {"prefill_stages": 2, "decode_stages": 2} | changes)


def attended(batch: PagedBatch, tiles: Any = None) -> torch.Tensor:
    """The backend's result on a q that is a slice of a wider tensor, as in the model, and a poisoned output."""
    from twinserve.real_backend.attention.triton_backend import TritonBackend

    shape = AttentionShape(
        device=batch.q.device,
        dtype=batch.q.dtype,
        num_heads=batch.q.shape[1],
        num_kv_heads=batch.k_cache.shape[2],
        head_dim=batch.q.shape[2],
        block_size=batch.k_cache.shape[1],
    )
    backend = TritonBackend(shape, tiles)
    wide = torch.cat((batch.q.flatten(1), torch.full_like(batch.q[:, 0], float("nan"))), dim=1)
    q = wide[:, : batch.q[0].numel()].unflatten(1, batch.q.shape[1:])
    out = torch.full_like(batch.q, float("nan"))
    backend._decode._partial.fill_(3.0)  # what an earlier step left there must not matter
    backend._decode._partial_lse.fill_(9.0)
    backend.begin_step(batch.meta)
    backend.forward(q, batch.k_cache, batch.v_cache, out)
    return out


def assert_right(batch: PagedBatch, out: torch.Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(out.double().cpu(), dense_attention(batch), atol=tolerance, rtol=tolerance)


@on_gpu_or_interpreted
@pytest.mark.parametrize("block_size", [1, 8, 12, 16, 64])
def test_mixed_rows_are_right_for_any_page_size(device: str, block_size: int) -> None:
    rows = [(1, 1), (1, 33), (1, 100), (2, 2), (17, 17), (20, 75)]
    batch = paged_batch(rows, block_size=block_size, heads=(4, 2, 16), device=device)
    assert_right(batch, attended(batch, tiny_tiles()))


@on_gpu_or_interpreted
@pytest.mark.parametrize("heads", [(2, 2, 16), (6, 3, 32), (10, 2, 16), (16, 2, 16)])
def test_any_number_of_query_heads_can_share_a_kv_head(device: str, heads: tuple[int, int, int]) -> None:
    batch = paged_batch([(1, 40), (1, 7), (9, 30)], block_size=16, heads=heads, device=device)
    assert_right(batch, attended(batch, tiny_tiles()))


@on_gpu_or_interpreted
@pytest.mark.parametrize("num_keys", [1, 15, 16, 17, 31, 32, 33, 300])
def test_a_split_decode_row_equals_an_unsplit_one(device: str, num_keys: int) -> None:
    """Eight SMs in the interpreter and one row: up to 32 splits, most of them empty for a short row."""
    rows = [(1, 300), (1, num_keys)]
    batch = paged_batch(rows, block_size=16, heads=(2, 1, 16), device=device)
    assert_right(batch, attended(batch, tiny_tiles()))


@on_gpu_or_interpreted
def test_decodes_alone_and_prefills_alone_are_right(device: str) -> None:
    for rows in ([(1, 5), (1, 50)], [(33, 33), (3, 60)], [(1, 9), (50, 50)]):
        batch = paged_batch(rows, block_size=16, heads=(4, 2, 16), device=device)
        assert_right(batch, attended(batch, tiny_tiles()))


@on_gpu_or_interpreted
def test_a_mixed_graph_tells_rows_apart_on_the_device(device: str) -> None:
    batch = paged_batch(MIXED_ROWS, block_size=16, heads=(4, 2, 16), device=device, mixed_graph=True)
    assert batch.meta.num_decodes == 0
    assert_right(batch, attended(batch, tiny_tiles()))


@on_gpu_or_interpreted
def test_the_mask_starts_where_the_first_query_stops_seeing(device: str) -> None:
    rows = [(3, context + 3) for context in range(12, 20)]
    batch = paged_batch(rows, block_size=16, heads=(4, 2, 16), device=device)
    assert_right(batch, attended(batch, tiny_tiles()))


@on_gpu_or_interpreted
@pytest.mark.parametrize("rows", [MIXED_ROWS, [(1, 90)], [(4, 90)]], ids=["many", "one_split", "one_prefill"])
def test_empty_rows_and_padding_tokens_are_left_alone(device: str, rows: list[tuple[int, int]]) -> None:
    """What a mixed graph adds: rows without tokens that see one key, and tokens that belong to no row."""
    import dataclasses

    batch = paged_batch(rows, block_size=16, heads=(4, 2, 16), device=device, mixed_graph=True)
    meta, padding = batch.meta, 11
    padded_meta = dataclasses.replace(
        meta,
        cu_seqlens_q=torch.cat((meta.cu_seqlens_q, meta.cu_seqlens_q[-1:].repeat(3))),
        seqused_k=torch.cat((meta.seqused_k, torch.ones(3, dtype=torch.int32, device=device))),
        block_table=torch.cat((meta.block_table, torch.zeros_like(meta.block_table[:3]))),
        slot_mapping=torch.cat((meta.slot_mapping, torch.full((padding,), -1, device=device))),
        max_seqlen_q=len(batch.q) + padding,
    )
    padded = dataclasses.replace(batch, q=torch.cat((batch.q, batch.q[:1].expand(padding, -1, -1))), meta=padded_meta)
    out = attended(padded, tiny_tiles())
    assert_right(batch, out[:-padding])
    assert out[-padding:].isnan().all()


@on_gpu_or_interpreted
def test_half_precision_is_within_its_rounding(device: str) -> None:
    batch = paged_batch(MIXED_ROWS, block_size=16, heads=(4, 2, 64), device=device, dtype=torch.float16)
    expected = dense_attention(batch)
    error = (attended(batch, tiny_tiles()).double().cpu() - expected).norm() / expected.norm()
    assert error < 1e-3


@on_gpu_or_interpreted
def test_tiles_cover_every_prefill_query_once(device: str) -> None:
    pytest.importorskip("triton")
    from twinserve.real_backend.attention.triton_backend import prefill_tiles

    for mixed_graph in (False, True):
        batch = paged_batch(MIXED_ROWS, block_size=16, heads=(4, 2, 16), device=device, mixed_graph=mixed_graph)
        tiles = prefill_tiles(batch.meta, 16, 2)
        listed = [(row, start) for row, start in zip(tiles.rows.tolist(), tiles.starts.tolist(), strict=True)]
        real = sorted(tile for tile in listed if tile[0] < len(MIXED_ROWS))
        skipped = {index for index, (new, _) in enumerate(MIXED_ROWS) if new == 1} if mixed_graph else {0, 1, 2}
        assert real == [
            (row, start) for row, (new, _) in enumerate(MIXED_ROWS) if row not in skipped for start in range(0, new, 8)
        ]
