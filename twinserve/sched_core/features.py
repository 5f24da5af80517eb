"""The numbers of a step that its duration depends on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes, GraphMode, dispatch
from twinserve.sched_core.plan import ONE, StepPlan

_EAGER = GraphMode.EAGER


class StepFeatures(NamedTuple):
    """Input of every cost model. A *decode row* computes one token, a *prefill row* more than one.

    ``decode_context`` is the sum over decode rows of the keys they attend to (computed + 1). ``prefill_pairs`` is
    the number of query-key pairs of the prefill rows, ``sum(new * computed + new * (new + 1) / 2)``;
    ``prefill_context`` the sum of their keys (computed + new). ``num_started`` counts rows that enter the batch.
    ``num_padded_tokens`` is what the graph chosen by ``dispatch`` computes (``num_tokens`` when eager).
    """

    num_tokens: int
    num_rows: int
    num_decodes: int
    decode_context: int
    prefill_tokens: int
    prefill_pairs: int
    prefill_context: int
    num_samples: int
    num_started: int
    graph_mode: GraphMode
    num_padded_tokens: int


def step_features(plan: StepPlan, capture_sizes: CaptureSizes = NO_GRAPHS) -> StepFeatures:
    """The features of a plan, given the graphs that the engine captured."""
    num_rows = len(plan.request_ids)
    total_context = int(np.add.reduce(plan.num_computed)) + plan.num_tokens
    tokens = context = pairs = num_prefills = 0
    if plan.num_tokens > num_rows:
        tokens, context, pairs, num_prefills = _prefill_work(plan)
    mode, num_padded_tokens = _EAGER, plan.num_tokens
    if capture_sizes is not NO_GRAPHS:
        mode, num_padded_tokens = dispatch(plan.num_tokens, num_rows, capture_sizes)
    return StepFeatures(  # in the order of its fields: keywords would cost 0.6 % of a simulated step
        plan.num_tokens,
        num_rows,
        num_rows - num_prefills,
        total_context - context,
        tokens,
        pairs,
        context,
        plan.num_samples,
        len(plan.started),
        mode,
        num_padded_tokens,
    )


def _prefill_work(plan: StepPlan) -> tuple[int, int, int, int]:
    """(tokens, keys, query-key pairs, rows) of the rows that compute more than one token."""
    tokens = context = pairs = 0
    rows = (plan.num_new > ONE).nonzero()[0].tolist()
    for row in rows:
        new, computed = plan.num_new.item(row), plan.num_computed.item(row)
        tokens += new
        context += computed + new
        pairs += new * computed + new * (new + 1) // 2
    return tokens, context, pairs, len(rows)
