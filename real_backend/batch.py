"""A step plan as one flat batch of tokens, in numpy and without a loop over tokens.

All scheduled tokens of all rows lie one after the other; ``cu_seqlens_q`` says where each row starts. Attention
reads keys and values of earlier tokens through ``block_tables`` and the new ones are stored at ``slot_mapping``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sched_core.plan import Ints, StepPlan

Int32s: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlatBatch:
    """N rows and T tokens, ready to be copied to a device.

    ``input_ids``, ``positions`` and ``slot_mapping`` have one entry per token. ``cu_seqlens_q`` and
    ``cu_seqlens_k`` (N + 1) count new tokens and visible keys from 0; ``context_lens`` (N) is computed + new.
    ``block_tables`` (N, widest row) holds block ids, padded with the table's filler. ``logits_rows`` are the rows
    that sample, in the order of the plan, and ``logits_tokens`` the place of each one's last token in the flat batch.
    The first ``num_decodes`` rows compute one token each (0 unless decode rows were put first).
    """

    input_ids: Ints
    positions: Ints
    cu_seqlens_q: Ints
    cu_seqlens_k: Ints
    max_seqlen_q: int
    max_seqlen_k: int
    slot_mapping: Ints
    context_lens: Ints
    block_tables: Int32s
    logits_rows: Ints
    logits_tokens: Ints
    num_decodes: int

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def num_rows(self) -> int:
        return len(self.context_lens)


def plan_order(plan: StepPlan) -> Ints:
    """Rows as the scheduler listed them."""
    return np.arange(plan.num_rows)


def decodes_first(plan: StepPlan) -> Ints:
    """Rows of one token, then the others, each in the scheduler's order: attention kernels treat them apart."""
    if plan.num_tokens == plan.num_rows:
        return np.arange(plan.num_rows)
    return np.argsort(plan.num_new > 1, kind="stable")


def build_batch(
    plan: StepPlan, order: Ints, token_table: Ints, block_table: Int32s, table_rows: Ints, block_size: int
) -> FlatBatch:
    """The flat batch of ``plan`` with its rows in ``order``.

    ``table_rows[i]`` is where request ``plan.request_ids[i]`` lives in ``token_table`` (rows, max_model_len) and
    ``block_table`` (rows, max blocks of a request).
    """
    owners, computed, new = table_rows[order], plan.num_computed[order], plan.num_new[order]
    context = computed + new
    cu_seqlens_q, cu_seqlens_k = _cumulated(new), _cumulated(context)
    positions = np.arange(cu_seqlens_q[-1]) + np.repeat(computed - cu_seqlens_q[:-1], new)
    token_owners = np.repeat(owners, new)
    blocks = block_table[token_owners, positions // block_size].astype(np.int64)
    rows = _sampling_rows(plan, order)
    max_seqlen_k = int(context.max())
    return FlatBatch(
        input_ids=token_table[token_owners, positions],
        positions=positions,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=int(new.max()),
        max_seqlen_k=max_seqlen_k,
        slot_mapping=blocks * block_size + positions % block_size,
        context_lens=context,
        block_tables=block_table[owners, : -(-max_seqlen_k // block_size)],
        logits_rows=rows,
        logits_tokens=cu_seqlens_q[rows + 1] - 1,
        num_decodes=_leading_ones(new),
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


def dummy_batch(num_tokens: int, num_rows: int, block_size: int, filler_block: int) -> FlatBatch:
    """A step of this size that stores nothing and reads the filler page only, for profiling and warming up.

    Tokens are shared out evenly; every row samples.
    """
    new = np.full(num_rows, num_tokens // num_rows, dtype=np.int64)
    new[: num_tokens % num_rows] += 1
    ends = _cumulated(new)
    longest = int(new.max())
    return FlatBatch(
        input_ids=np.zeros(num_tokens, dtype=np.int64),
        positions=np.arange(num_tokens) - np.repeat(ends[:-1], new),
        cu_seqlens_q=ends,
        cu_seqlens_k=ends,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        slot_mapping=np.full(num_tokens, -1, dtype=np.int64),
        context_lens=new,
        block_tables=np.full((num_rows, -(-longest // block_size)), filler_block, dtype=np.int32),
        logits_rows=np.arange(num_rows),
        logits_tokens=ends[1:] - 1,
        num_decodes=_leading_ones(new),
    )
