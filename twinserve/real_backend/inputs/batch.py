"""A step plan as one flat batch of tokens, in numpy and without a loop over tokens.

All scheduled tokens of all rows lie one after the other; ``cu_seqlens_q`` says where each row starts. Where each token
is in its sequence and in the KV cache follows from that on the device (``expansion.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twinserve.real_backend.inputs.request_tokens import RequestTokens
from twinserve.sched_core.plan import Ints, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FlatBatch:
    """N rows and T tokens, as the host tells them to the device.

    ``input_ids`` has one entry per token, ``row_slots`` and ``num_computed`` one per row; ``cu_seqlens_q`` (N + 1)
    counts the new tokens from 0. ``sample_rows`` are the rows that sample, in the order of the plan. The first
    ``num_decodes`` rows compute one token each.
    """

    input_ids: Ints
    row_slots: Ints
    num_computed: Ints
    cu_seqlens_q: Ints
    sample_rows: Ints
    num_decodes: int

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def num_rows(self) -> int:
        return len(self.row_slots)

    @property
    def max_seqlen_q(self) -> int:
        """The most tokens that a row computes."""
        return int(np.diff(self.cu_seqlens_q).max())

    @property
    def max_seqlen_k(self) -> int:
        """The most keys that a row sees."""
        return int((self.num_computed + np.diff(self.cu_seqlens_q)).max())


def build_batch(plan: StepPlan, tokens: RequestTokens, slots: Ints) -> FlatBatch:
    """The flat batch of ``plan``; request ``plan.request_ids[i]`` lives in ``slots[i]``.

    Rows of one token come first, then the others, each in the scheduler's order: attention kernels treat them apart.
    A step of single-token rows only takes a shorter way: it is the one whose host time counts most.
    """
    if plan.num_tokens == plan.num_rows:
        return _decode_batch(plan, tokens, slots)
    is_long = plan.num_new > 1
    order = np.argsort(is_long, kind="stable")
    num_decodes = len(order) - int(np.count_nonzero(is_long))
    slots, computed, new = slots[order], plan.num_computed[order], plan.num_new[order]
    head, tail = slice(num_decodes), slice(num_decodes, None)
    singles = tokens.at(slots[head], computed[head])
    chunks = zip(slots[tail].tolist(), computed[tail].tolist(), new[tail].tolist(), strict=True)
    ids = [tokens.token_ids[slot][start : start + count] for slot, start, count in chunks]
    return FlatBatch(
        input_ids=np.concatenate([singles, *ids]),
        row_slots=slots,
        num_computed=computed,
        cu_seqlens_q=_cumulated(new),
        sample_rows=_sampling_rows(plan, order),
        num_decodes=num_decodes,
    )


def _decode_batch(plan: StepPlan, tokens: RequestTokens, slots: Ints) -> FlatBatch:
    """Here a row, its token and its index in the plan have the same number."""
    num_rows = plan.num_rows
    indices = np.arange(num_rows + 1)
    return FlatBatch(
        input_ids=tokens.at(slots, plan.num_computed),
        row_slots=slots,
        num_computed=plan.num_computed,
        cu_seqlens_q=indices,
        sample_rows=indices[:num_rows] if plan.num_samples == num_rows else plan.samples.nonzero()[0],
        num_decodes=num_rows,
    )


def _sampling_rows(plan: StepPlan, order: Ints) -> Ints:
    """Rows, after reordering, that sample, in the order of the plan."""
    row_of = np.empty_like(order)
    row_of[order] = np.arange(len(order))
    return row_of[plan.samples]


def _cumulated(counts: Ints) -> Ints:
    sums = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def dummy_batch(num_tokens: int, num_rows: int, filler_slot: int) -> FlatBatch:
    """A step of this size that stores nothing and reads the filler page only, for profiling and warming up.

    Tokens are shared out evenly; every row samples.
    """
    new = np.full(num_rows, num_tokens // num_rows, dtype=np.int64)
    new[: num_tokens % num_rows] += 1
    new = np.sort(new)
    return FlatBatch(
        input_ids=np.zeros(num_tokens, dtype=np.int64),
        row_slots=np.full(num_rows, filler_slot),
        num_computed=np.zeros(num_rows, dtype=np.int64),
        cu_seqlens_q=_cumulated(new),
        sample_rows=np.arange(num_rows),
        num_decodes=int(np.count_nonzero(new == 1)),
    )
