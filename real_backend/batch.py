"""A step plan as one flat batch of tokens, in numpy and without a loop over tokens.

All scheduled tokens of all rows lie one after the other; ``cu_seqlens_q`` says where each row starts. Attention
reads keys and values of earlier tokens through block tables and the new ones are stored at ``slot_mapping``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from real_backend.request_state import RequestTables
from real_backend.table_rows import TableRows
from sched_core.plan import Ints, StepPlan

_Id = TypeVar("_Id", np.int32, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlatBatch:
    """N rows and T tokens, ready to be copied to a device.

    ``input_ids``, ``positions`` and ``slot_mapping`` have one entry per token. ``cu_seqlens_q`` and
    ``cu_seqlens_k`` (N + 1) count new tokens and visible keys from 0; ``context_lens`` (N) is computed + new.
    ``table_rows`` says where the rows' block ids are. ``logits_tokens`` are the places in the flat batch of the last
    tokens of the rows that sample, in the order of the plan. The first ``num_decodes`` rows compute one token each (0
    unless decode rows were put first).
    """

    input_ids: Ints
    positions: Ints
    cu_seqlens_q: Ints
    cu_seqlens_k: Ints
    max_seqlen_q: int
    max_seqlen_k: int
    slot_mapping: Ints
    context_lens: Ints
    table_rows: TableRows
    logits_tokens: Ints
    num_decodes: int

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def num_rows(self) -> int:
        return len(self.context_lens)


def build_batch(plan: StepPlan, tables: RequestTables, owners: Ints) -> FlatBatch:
    """The flat batch of ``plan``; request ``plan.request_ids[i]`` is in row ``owners[i]`` of ``tables``.

    Rows of one token come first, then the others, each in the scheduler's order: attention kernels treat them apart.
    A step of single-token rows only takes a shorter way: it is the one whose host time counts.
    """
    if plan.num_tokens == plan.num_rows:
        return _decode_batch(plan, tables, owners)
    order = np.argsort(plan.num_new > 1, kind="stable")
    owners, computed, new = owners[order], plan.num_computed[order], plan.num_new[order]
    context = computed + new
    cu_seqlens_q = _cumulated(new)
    positions = np.arange(cu_seqlens_q[-1]) + np.repeat(computed - cu_seqlens_q[:-1], new)
    token_owners = np.repeat(owners, new)
    num_decodes = _leading_ones(new)
    return FlatBatch(
        input_ids=_entries(tables.token_ids, token_owners, positions),
        positions=positions,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=_cumulated(context),
        max_seqlen_q=int(new.max()),
        max_seqlen_k=int(context.max()),
        slot_mapping=_slots(tables, token_owners, positions),
        context_lens=context,
        table_rows=_table_rows(tables, owners, context, num_decodes),
        logits_tokens=cu_seqlens_q[_sampling_rows(plan, order) + 1] - 1,
        num_decodes=num_decodes,
    )


def _decode_batch(plan: StepPlan, tables: RequestTables, owners: Ints) -> FlatBatch:
    """Here a row, its token and its place in the plan have the same number."""
    num_rows, positions = plan.num_rows, plan.num_computed
    context, places = positions + 1, np.arange(num_rows + 1)
    return FlatBatch(
        input_ids=_entries(tables.token_ids, owners, positions),
        positions=positions,
        cu_seqlens_q=places,
        cu_seqlens_k=_cumulated(context),
        max_seqlen_q=1,
        max_seqlen_k=int(context.max()),
        slot_mapping=_slots(tables, owners, positions),
        context_lens=context,
        table_rows=_table_rows(tables, owners, context, num_rows),
        logits_tokens=places[:num_rows] if plan.num_samples == num_rows else plan.samples.nonzero()[0],
        num_decodes=num_rows,
    )


def _entries(table: NDArray[_Id], rows: Ints, columns: Ints) -> NDArray[_Id]:
    """``table[rows, columns]``, several times faster: an index of two arrays is numpy's slow case."""
    return table.ravel().take(rows * table.shape[1] + columns)


def _slots(tables: RequestTables, owners: Ints, positions: Ints) -> Ints:
    """Where the keys and values of these tokens are stored: token ``slot % block size`` of a block."""
    size = tables.block_size
    blocks = positions // size
    slots: Ints = (_entries(tables.block_ids, owners, blocks) - blocks) * size + positions
    return slots


def _table_rows(tables: RequestTables, owners: Ints, context: Ints, num_decodes: int) -> TableRows:
    return TableRows(
        table=tables.block_ids,
        owners=owners,
        tenants=tables.tenants[owners],
        last_columns=(context - 1) // tables.block_size,
        num_decodes=num_decodes,
    )


def _cumulated(counts: Ints) -> Ints:
    sums = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def _sampling_rows(plan: StepPlan, order: Ints) -> Ints:
    """Places, after reordering, of the rows that sample, in the order of the plan."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place[plan.samples]


def _leading_ones(counts: Ints) -> int:
    longer = np.flatnonzero(counts != 1)
    return int(longer[0]) if len(longer) else len(counts)


def dummy_batch(num_tokens: int, num_rows: int, max_blocks: int, filler_block: int) -> FlatBatch:
    """A step of this size that stores nothing and reads the filler page only, for profiling and warming up.

    Tokens are shared out evenly; every row samples.
    """
    new = np.full(num_rows, num_tokens // num_rows, dtype=np.int64)
    new[: num_tokens % num_rows] += 1
    ends = _cumulated(new)
    longest, num_decodes = int(new.max()), _leading_ones(new)
    return FlatBatch(
        input_ids=np.zeros(num_tokens, dtype=np.int64),
        positions=np.arange(num_tokens) - np.repeat(ends[:-1], new),
        cu_seqlens_q=ends,
        cu_seqlens_k=ends,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        slot_mapping=np.full(num_tokens, -1, dtype=np.int64),
        context_lens=new,
        table_rows=TableRows.of_filler(num_rows, num_decodes, max_blocks, filler_block),
        logits_tokens=ends[1:] - 1,
        num_decodes=num_decodes,
    )
