"""Every GPU attention backend on Qwen3-8B's shapes in bfloat16, eager and inside CUDA graphs."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from tests.real_backend.devices import on_gpu
from tests.real_backend.paged_batches import PagedBatch, dense_attention, paged_batch
from twinserve.real_backend.attention.base import AttentionBackend, AttentionMetadata, AttentionShape
from twinserve.real_backend.attention.facts import ATTENTION_BACKENDS
from twinserve.real_backend.attention.registry import make_attention_backend
from twinserve.real_backend.errors import EngineError

pytestmark = on_gpu

HEADS = (32, 8, 128)
TOLERANCE = 5e-3  # bfloat16 rounds the weights and the result at 2^-9 each
BACKENDS = ("fa2", "fa3", "torch_varlen", "triton", "sdpa")
BATCHES = {
    "decodes": [(1, 1 + 61 * row) for row in range(33)],
    "one_long_decode": [(1, 5000)],
    "whole_prompts": [(700, 700), (2, 2), (257, 257)],
    "chunks_after_context": [(128, 1100), (31, 1055), (300, 2300)],
    "mixed": [(1, 1024), (1, 1), (1, 257), (448, 1472), (3, 1000), (100, 100)],
}


def backend_for(name: str, block_size: int) -> AttentionBackend:
    """The backend, or a skip where this machine or the block size does not allow it."""
    shape = AttentionShape(
        device=torch.device("cuda"),
        dtype=torch.bfloat16,
        num_heads=HEADS[0],
        num_kv_heads=HEADS[1],
        head_dim=HEADS[2],
        block_size=block_size,
    )
    try:
        return make_attention_backend(name, shape)
    except EngineError as error:
        pytest.skip(str(error))


def batch_of(rows: list[tuple[int, int]], block_size: int, seed: int, *, mixed_graph: bool = False) -> PagedBatch:
    """Unused slots hold large numbers: a kernel that reads them without masking is far off."""
    return paged_batch(
        rows,
        block_size=block_size,
        heads=HEADS,
        dtype=torch.bfloat16,
        device="cuda",
        seed=seed,
        mixed_graph=mixed_graph,
        poison=1e4,
    )


def attended(backend: AttentionBackend, batch: PagedBatch) -> torch.Tensor:
    out = torch.full_like(batch.q, float("nan"))
    backend.begin_step(batch.meta)
    backend.forward(batch.q, batch.k_cache, batch.v_cache, out)
    return out


def relative_error(out: torch.Tensor, batch: PagedBatch) -> float:
    expected = dense_attention(batch, torch.float32)
    return float((out.float().cpu() - expected).norm() / expected.norm())


@pytest.mark.parametrize("block_size", [16, 64, 256])
@pytest.mark.parametrize("rows", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("name", BACKENDS)
def test_backend_is_within_bfloat16_rounding(name: str, rows: list[tuple[int, int]], block_size: int) -> None:
    backend = backend_for(name, block_size)
    batch = batch_of(rows, block_size, seed=len(rows))
    assert relative_error(attended(backend, batch), batch) < TOLERANCE


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", BACKENDS)
def test_random_mixed_batches_are_within_bfloat16_rounding(name: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    new = torch.randint(1, 200, (12,), generator=generator)
    new[: seed + 3] = 1
    context = torch.randint(0, 1500, (12,), generator=generator)
    rows = [(int(count), int(count + before)) for count, before in zip(new, context, strict=True)]
    rows.sort(key=lambda row: row[0] > 1)
    batch = batch_of(rows, 256, seed)
    assert relative_error(attended(backend_for(name, 256), batch), batch) < TOLERANCE


def widened(batch: PagedBatch, num_rows: int, num_tokens: int, num_blocks: int) -> PagedBatch:
    """The batch padded as a graph pads it: empty rows that see one key, tokens of no row."""
    meta = batch.meta
    more_rows, more_tokens = num_rows - meta.num_rows, num_tokens - len(batch.q)
    table = torch.zeros(num_rows, num_blocks, dtype=torch.int32, device="cuda")
    table[: meta.num_rows, : meta.block_table.shape[1]] = meta.block_table
    ones = torch.ones(more_rows, dtype=torch.int32, device="cuda")
    padded = replace(
        meta,
        cu_seqlens_q=torch.cat((meta.cu_seqlens_q, meta.cu_seqlens_q[-1:].expand(more_rows))),
        cu_seqlens_k=torch.cat((meta.cu_seqlens_k, meta.cu_seqlens_k[-1:] + ones.cumsum(0).int())),
        seqused_k=torch.cat((meta.seqused_k, ones)),
        block_table=table,
        slot_mapping=torch.cat((meta.slot_mapping, torch.full((more_tokens,), -1, device="cuda"))),
        max_seqlen_q=num_tokens if meta.mixed_graph else 1,
        max_seqlen_k=num_blocks * batch.k_cache.shape[1],
    )
    return replace(
        batch, q=torch.cat((batch.q, torch.zeros_like(batch.q[:1]).expand(more_tokens, -1, -1))), meta=padded
    )


def copy_into(target: AttentionMetadata, source: AttentionMetadata) -> None:
    for field in fields(AttentionMetadata):
        if isinstance(tensor := getattr(target, field.name), torch.Tensor):
            tensor.copy_(getattr(source, field.name))


def check_graph(backend: AttentionBackend, captured: PagedBatch, replayed: PagedBatch, num_tokens: int) -> None:
    """Captures one batch, brings another one into the same tensors, replays."""
    pages = max(len(captured.k_cache), len(replayed.k_cache))
    caches = torch.zeros(2, pages, *captured.k_cache.shape[1:], dtype=torch.bfloat16, device="cuda")
    static = replace(captured, k_cache=caches[0], v_cache=caches[1])
    attended(backend, static)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attended(backend, static)
    static.q.copy_(replayed.q)
    copy_into(static.meta, replayed.meta)
    caches[0, : len(replayed.k_cache)] = replayed.k_cache
    caches[1, : len(replayed.v_cache)] = replayed.v_cache
    for _ in range(2):
        graph.replay()
    real = replace(replayed, q=replayed.q[:num_tokens])
    assert relative_error(out[:num_tokens], real) < TOLERANCE


@pytest.mark.parametrize("name", BACKENDS)
def test_a_decode_graph_serves_any_lengths(name: str) -> None:
    backend = backend_for(name, 256)
    if ATTENTION_BACKENDS[name].graph_support == "none":
        pytest.skip("this backend supports no graphs")
    captured = widened(batch_of([(1, 1)] * 9, 256, seed=0), 9, 9, 16)
    replayed = widened(batch_of([(1, 1 + 400 * row) for row in range(9)], 256, seed=1), 9, 9, 16)
    check_graph(backend, captured, replayed, 9)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_mixed_graph_serves_any_rows(name: str) -> None:
    backend = backend_for(name, 256)
    if ATTENTION_BACKENDS[name].graph_support != "mixed":
        pytest.skip("this backend supports no mixed graphs")
    captured = widened(batch_of([(256, 256)], 256, seed=0, mixed_graph=True), 12, 256, 16)
    rows = [(1, 900), (1, 3), (90, 90), (1, 3000), (5, 1300), (130, 2000)]
    replayed = widened(batch_of(rows, 256, seed=1, mixed_graph=True), 12, 256, 16)
    check_graph(backend, captured, replayed, sum(count for count, _ in rows))
