"""Random generators: one named generator per (seed, repeat, purpose)."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RandomStreams:
    """The generators of one run.

    Each purpose has its own, so that drawing more of one thing (longer prompts, say) leaves the others as they are,
    and points of a sweep that share ``seed`` and ``repeat`` share random numbers.
    """

    seed: int
    repeat: int

    def generator(self, name: str) -> np.random.Generator:
        """A fresh generator at the start of stream ``name``: the same numbers on every call and every machine."""
        return np.random.default_rng(np.random.SeedSequence([self.seed, self.repeat, _stable_hash(name)]))


def weighted_choice(weights: NDArray[np.float64], size: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """``size`` indices into ``weights`` (>= 0, not all zero), drawn in proportion to them."""
    edges = np.cumsum(weights, dtype=np.float64)
    drawn: NDArray[np.int64] = np.searchsorted(edges, generator.random(size) * edges[-1], side="right")
    drawn[drawn == len(edges)] = len(edges) - 1  # a draw next to 1 may round up to the last edge
    return drawn


def _stable_hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
