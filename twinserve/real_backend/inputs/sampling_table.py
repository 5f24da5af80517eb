"""Sampling parameters of the requests in the batch, by slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.spec import RequestSpec, SamplingParams

_SEED_MASK = (1 << 63) - 1


class _Kind(IntFlag):
    """What a request asks of the sampler beyond the largest logit."""

    RANDOM = 1
    TRUNCATED = 2
    HAS_MINIMUM = 4

    @classmethod
    def of(cls, params: SamplingParams) -> _Kind:
        kind = cls.RANDOM if params.temperature else cls(0)
        if params.top_k or params.top_p < 1.0:
            kind |= cls.TRUNCATED
        return kind | cls.HAS_MINIMUM if params.min_tokens else kind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplingRows:
    """What the host knows of a step's sampling rows; their parameters are on the device, by slot.

    ``all_greedy`` and ``any_truncated`` (some row has top-k or top-p) are what the sampler picks its way by.
    ``forbidden`` lists (row, token id) pairs that may not be drawn yet because of ``min_tokens``.
    """

    count: int
    all_greedy: bool
    any_truncated: bool
    forbidden: tuple[tuple[int, int], ...] = ()


class SamplingTable:
    """One row of parameters per slot. A request without a seed gets one from the run's seed and its id.

    ``columns`` are the arrays that go to the device: temperature, top_p, top_k (0 where off: a device column has no
    None) and seed.
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]], num_slots: int, run_seed: int, vocab_size: int) -> None:
        self._columns = columns
        self._run_seed = run_seed
        self._vocab_size = vocab_size
        self._kinds = np.zeros(num_slots, dtype=np.int64)
        self._min_length = np.zeros(num_slots, dtype=np.int64)
        self._ending_ids: list[tuple[int, ...]] = [()] * num_slots

    def set(self, slot: int, spec: RequestSpec) -> None:
        params, columns = spec.sampling, self._columns
        columns["temperature"][slot] = params.temperature
        columns["top_p"][slot] = params.top_p
        columns["top_k"][slot] = params.top_k or 0
        columns["seed"][slot] = _request_seed(self._run_seed, spec.request_id) if params.seed is None else params.seed
        self._kinds[slot] = _Kind.of(params)
        self._min_length[slot] = spec.num_prompt_tokens + params.min_tokens
        # An id outside the vocabulary is never drawn, and as an index it would end the process's use of a GPU.
        known = (token_id for token_id in params.ending_ids if 0 <= token_id < self._vocab_size)
        self._ending_ids[slot] = tuple(sorted(known)) if params.min_tokens else ()

    def rows(self, slots: Ints, lengths: Ints) -> SamplingRows:
        """Of the requests in ``slots``, which know ``lengths`` tokens and sample the next one."""
        kinds = int(np.bitwise_or.reduce(self._kinds[slots], initial=0))
        return SamplingRows(
            count=len(slots),
            all_greedy=not kinds & _Kind.RANDOM,
            any_truncated=bool(kinds & _Kind.TRUNCATED),
            forbidden=self._forbidden(slots, lengths) if kinds & _Kind.HAS_MINIMUM else (),
        )

    def _forbidden(self, slots: Ints, lengths: Ints) -> tuple[tuple[int, int], ...]:
        too_short = np.flatnonzero(lengths < self._min_length[slots]).tolist()
        return tuple((row, token_id) for row in too_short for token_id in self._ending_ids[slots[row]])


def _request_seed(run_seed: int, request_id: int) -> int:
    """Distinct for distinct (seed, id) pairs in practice: a splitmix64 finaliser over both."""
    mixed = (run_seed * 0x9E3779B97F4A7C15 + request_id + 1) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
    return (mixed ^ mixed >> 31) & _SEED_MASK
