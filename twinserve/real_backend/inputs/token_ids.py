"""Token ids for a model, out of the streams that stand for them elsewhere.

A token's id depends on its stream and its position in that stream only, so equal segments give equal ids however a
prompt is cut into chunks or blocks.
"""

from __future__ import annotations

import numpy as np

from twinserve.sched_core.plan import Ints
from twinserve.sched_core.requests.prompt import Piece, Prompt, TokenIds

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def token_ids_of(piece: Piece, vocab_size: int) -> Ints:
    """The ids of a piece, shape ``(piece.length,)``, each in ``[0, vocab_size)`` for made-up ones.

    Explicit ids are returned as they are. Ids of a stream are a hash (SplitMix64 of Steele, Lea and Flood 2014) of
    stream and position.

    Raises:
        ValueError: ``vocab_size`` is not in ``[1, 2**32]``.
    """
    if not 1 <= vocab_size <= 1 << 32:
        raise ValueError(f"vocab_size must be from 1 to 2**32, got {vocab_size}")
    if isinstance(piece, TokenIds):
        return np.array(piece.ids, dtype=np.int64)
    positions = np.arange(piece.offset, piece.offset + piece.length, dtype=np.uint64)
    seed = int(_mixed(np.array([piece.stream], dtype=np.uint64))[0])
    # The high half, scaled: no modulo bias worth speaking of, and no 128-bit product.
    high = _mixed(positions + np.uint64(seed)) >> np.uint64(32)
    return ((high * np.uint64(vocab_size)) >> np.uint64(32)).astype(np.int64)


def prompt_token_ids(prompt: Prompt, vocab_size: int) -> Ints:
    """The ids of a whole prompt, shape ``(len(prompt),)``."""
    parts = [token_ids_of(piece, vocab_size) for piece in prompt.pieces]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _mixed(words: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    """SplitMix64's output function of each word (arrays wrap around silently, as it needs)."""
    words = (words + np.uint64(1)) * np.uint64(_GOLDEN)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
