"""Sampling parameters of the requests in the batch, as columns that a step picks its rows from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sched_core.plan import Ints
from sched_core.spec import RequestSpec

Floats: TypeAlias = NDArray[np.float32]

_SEED_MASK = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplingParameters:
    """What S sampling rows asked for, the same in every step as long as the rows are.

    ``seed`` is the request's own. ``top_k`` is 0 where off (a device column has no None). ``all_greedy`` and
    ``any_truncated`` (some row has top-k or top-p) are what the sampler picks its way by. ``min_length`` is the length
    below which a row's request may not end.
    """

    temperature: Floats
    top_p: Floats
    top_k: Ints
    seed: Ints
    min_length: Ints
    all_greedy: bool
    any_truncated: bool
    any_minimum: bool

    @classmethod
    def of(cls, temperature: Floats, top_p: Floats, top_k: Ints, seed: Ints, min_length: Ints) -> SamplingParameters:
        return cls(
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
            min_length=min_length,
            all_greedy=not temperature.any(),
            any_truncated=bool(top_k.any() or (top_p < 1.0).any()),
            any_minimum=bool(min_length.any()),
        )

    def columns(self) -> dict[str, NDArray[np.generic]]:
        return {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k, "seed": self.seed}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplingRows:
    """S sampling rows of one step.

    ``sample_position`` is the place of the sampled token in its sequence, so that a draw depends on nothing else in
    the batch. ``forbidden`` lists (row, token id) pairs that may not be drawn yet because of ``min_tokens``.
    """

    parameters: SamplingParameters
    sample_position: Ints
    forbidden: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return len(self.sample_position)

    @classmethod
    def dummy(cls, num_rows: int, *, truncated: bool) -> SamplingRows:
        """Rows that draw at random; from truncated distributions they cost the sampler most."""
        parameters = SamplingParameters.of(
            temperature=np.ones(num_rows, dtype=np.float32),
            top_p=np.full(num_rows, 0.5 if truncated else 1.0, dtype=np.float32),
            top_k=np.full(num_rows, 8 if truncated else 0, dtype=np.int64),
            seed=np.zeros(num_rows, dtype=np.int64),
            min_length=np.zeros(num_rows, dtype=np.int64),
        )
        return cls(parameters=parameters, sample_position=np.zeros(num_rows, dtype=np.int64))


class SamplingTable:
    """One row of parameters per slot. A request without a seed gets one from the run's seed and its id."""

    def __init__(self, num_slots: int, run_seed: int) -> None:
        self._run_seed = run_seed
        self._temperature = np.zeros(num_slots, dtype=np.float32)
        self._top_p = np.ones(num_slots, dtype=np.float32)
        self._top_k = np.zeros(num_slots, dtype=np.int64)
        self._seed = np.zeros(num_slots, dtype=np.int64)
        self._min_length = np.zeros(num_slots, dtype=np.int64)
        self._ending_ids: list[tuple[int, ...]] = [()] * num_slots
        self._last_slots = np.empty(0, dtype=np.int64)
        self._last_parameters: SamplingParameters | None = None

    def set(self, slot: int, spec: RequestSpec) -> None:
        params = spec.sampling
        self._last_parameters = None
        self._temperature[slot] = params.temperature
        self._top_p[slot] = params.top_p
        self._top_k[slot] = params.top_k or 0
        self._seed[slot] = _request_seed(self._run_seed, spec.request_id) if params.seed is None else params.seed
        self._min_length[slot] = spec.num_prompt_tokens + params.min_tokens if params.min_tokens else 0
        self._ending_ids[slot] = tuple(sorted(params.ending_ids))

    def rows(self, slots: Ints, lengths: Ints) -> SamplingRows:
        """Parameters of ``slots``, which know ``lengths`` tokens and sample the next one."""
        parameters = self._parameters(slots)
        forbidden = self._forbidden(slots, lengths < parameters.min_length) if parameters.any_minimum else ()
        return SamplingRows(parameters=parameters, sample_position=lengths, forbidden=forbidden)

    def _parameters(self, slots: Ints) -> SamplingParameters:
        """Those of the last step when they are the same rows, which saves gathering and staging them again."""
        is_last = slots is self._last_slots or np.array_equal(slots, self._last_slots)
        if self._last_parameters is None or not is_last:
            self._last_slots = slots
            self._last_parameters = SamplingParameters.of(
                temperature=self._temperature[slots],
                top_p=self._top_p[slots],
                top_k=self._top_k[slots],
                seed=self._seed[slots],
                min_length=self._min_length[slots],
            )
        return self._last_parameters

    def _forbidden(self, slots: Ints, is_too_short: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
        too_short = np.flatnonzero(is_too_short).tolist()
        return tuple((row, token_id) for row in too_short for token_id in self._ending_ids[slots[row]])


def _request_seed(run_seed: int, request_id: int) -> int:
    """Distinct for distinct (seed, id) pairs in practice: a splitmix64 finaliser over both."""
    mixed = (run_seed * 0x9E3779B97F4A7C15 + request_id + 1) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
    return (mixed ^ mixed >> 31) & _SEED_MASK
