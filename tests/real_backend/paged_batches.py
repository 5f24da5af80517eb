"""Builders of paged batches, and attention written the obvious way, for the tests of models and kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from twinserve.real_backend.attention.base import AttentionMetadata


@dataclass(frozen=True, kw_only=True)
class PagedBatch:
    """q [T, Hq, D], K and V pages [P, page, Hkv, D] with NaN wherever no token lies, and the step's metadata."""

    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    meta: AttentionMetadata


def metadata(
    rows: list[tuple[int, int]],
    block_size: int,
    generator: torch.Generator,
    *,
    mixed_graph: bool = False,
    device: str = "cpu",
) -> AttentionMetadata:
    """``rows`` are (new tokens, keys), decode rows first; pages are dealt out at random. Unused table entries are 0."""
    new, keys = torch.tensor([row[0] for row in rows]), torch.tensor([row[1] for row in rows])
    num_blocks = -(-keys // block_size)
    pages = torch.randperm(int(num_blocks.sum()) + 1, generator=generator)
    block_table = torch.zeros(len(rows), int(num_blocks.max()) + 1, dtype=torch.int32)
    taken = 0
    for row, count in enumerate(num_blocks.tolist()):
        block_table[row, :count] = pages[taken : taken + count]
        taken += count
    slots = [
        block_table[row, position // block_size] * block_size + position % block_size
        for row, (count, length) in enumerate(rows)
        for position in range(length - count, length)
    ]
    leading = next((row for row, (count, _) in enumerate(rows) if count != 1), len(rows))
    return AttentionMetadata(
        cu_seqlens_q=_cumulated(new).to(device),
        cu_seqlens_k=_cumulated(keys).to(device),
        seqused_k=keys.to(device, torch.int32),
        block_table=block_table.to(device),
        slot_mapping=torch.tensor(slots, dtype=torch.int64, device=device),
        num_decodes=0 if mixed_graph else leading,
        max_seqlen_q=int(new.max()),
        max_seqlen_k=int(keys.max()),
        mixed_graph=mixed_graph,
    )


def paged_batch(
    rows: list[tuple[int, int]],
    *,
    block_size: int,
    heads: tuple[int, int, int],
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
    mixed_graph: bool = False,
    poison: float = float("nan"),
) -> PagedBatch:
    """Random q, K and V for ``heads`` = (Hq, Hkv, D); pages and slots that hold no key of the batch are poisoned."""
    generator = torch.Generator().manual_seed(seed)
    meta = metadata(rows, block_size, generator, mixed_graph=mixed_graph)
    num_heads, num_kv_heads, head_dim = heads
    num_pages = int(meta.block_table.max()) + 2
    caches = torch.full((2, num_pages, block_size, num_kv_heads, head_dim), poison)
    for table, length in zip(meta.block_table, meta.seqused_k.tolist(), strict=True):
        slots = _slots(table, length, block_size)
        caches.view(2, -1, num_kv_heads, head_dim)[:, slots] = torch.randn(
            2, length, num_kv_heads, head_dim, generator=generator
        )
    q = torch.randn(int(meta.cu_seqlens_q[-1]), num_heads, head_dim, generator=generator)
    q, caches = q.to(device, dtype), caches.to(device, dtype)
    on_device = metadata(rows, block_size, torch.Generator().manual_seed(seed), mixed_graph=mixed_graph, device=device)
    return PagedBatch(q=q, k_cache=caches[0], v_cache=caches[1], meta=on_device)


def dense_attention(batch: PagedBatch, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Every row's attention with explicit scores, mask and softmax, on the CPU in ``dtype``."""
    out = torch.zeros(batch.q.shape, dtype=dtype)
    ends = batch.meta.cu_seqlens_q.tolist()
    block_size = batch.k_cache.shape[1]
    group = batch.q.shape[1] // batch.k_cache.shape[2]
    for row, length in enumerate(batch.meta.seqused_k.tolist()):
        slots = _slots(batch.meta.block_table[row].cpu(), length, block_size)
        keys, values = (
            cache.cpu().flatten(0, 1)[slots].to(dtype).repeat_interleave(group, dim=1)
            for cache in (batch.k_cache, batch.v_cache)
        )
        queries = batch.q[ends[row] : ends[row + 1]].cpu().to(dtype)
        scores = torch.einsum("qhd,khd->hqk", queries, keys) / queries.shape[-1] ** 0.5
        last_visible = torch.arange(length - len(queries), length).unsqueeze(1)
        scores = scores.masked_fill(torch.arange(length) > last_visible, -torch.inf)
        out[ends[row] : ends[row + 1]] = torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), values)
    return out


def _slots(table: torch.Tensor, length: int, block_size: int) -> torch.Tensor:
    positions = torch.arange(length)
    return table.long()[positions // block_size] * block_size + positions % block_size


def _cumulated(counts: torch.Tensor) -> torch.Tensor:
    return torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0))).to(torch.int32)
