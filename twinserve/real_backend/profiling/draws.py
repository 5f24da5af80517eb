"""Rows drawn at random within an engine's limits: contexts as workloads have them, and prompts cut into chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from twinserve.real_backend.profiling.shape import Limits, Row, Shape

MIN_CHUNK = 2
"""Tokens; a row of one token is a decode to the kernels and to the cost models."""


class Draws:
    """Reproducible: the same limits and seed give the same rows in the same order of calls."""

    def __init__(self, limits: Limits, seed: Sequence[int]) -> None:
        self.limits = limits
        self._rng = np.random.default_rng(seed)

    def count(self, least: int, most: int) -> int:
        """A whole number in ``[least, most]``: half the time uniform, half the time as likely per octave."""
        if self._rng.random() < 0.5:
            return int(self._rng.integers(least, most + 1))
        return self.log_count(least, most)

    def log_count(self, least: int, most: int) -> int:
        """A whole number in ``[least, most]`` (both >= 1), each octave as likely."""
        return min(int(np.exp(self._rng.uniform(np.log(least), np.log(most + 1)))), most)

    def longest_prompt(self) -> int:
        """The scale of a workload: half of ``max_model_len``, or, as often, any scale down to a 32nd."""
        most = max(self.limits.max_model_len // 2, 1)
        return most if self._rng.random() < 0.5 else self.log_count(max(most // 16, 1), most)

    def decodes(self, count: int) -> list[Row]:
        """Requests in the middle of their output, with prompts of a 16th to the whole of one scale."""
        longest = self.longest_prompt()
        prompts = self._rng.integers(max(longest // 16, 1), longest + 1, count)
        outputs = self._rng.integers(0, longest // 8 + 1, count)
        return self._decode_rows(prompts + outputs)

    def skewed_decodes(self, count: int) -> list[Row]:
        """Many short contexts and a few that are as long as can be."""
        contexts = np.exp(self._rng.normal(np.log(max(self.limits.max_model_len / 16, 1)), 1.2, count))
        return self._decode_rows(contexts.astype(np.int64))

    def chunks(self, num_tokens: int, count: int) -> list[Row]:
        """``num_tokens`` of up to ``count`` prompts: some at their start, some in the middle, the last one often cut.

        Takes more rows where a prompt would be too long, and none for less than MIN_CHUNK tokens, or for requests so
        short that some chunk might have to be.
        """
        longest = self.limits.max_context
        if num_tokens < MIN_CHUNK or longest <= MIN_CHUNK:
            return []
        count = max(min(count, num_tokens // MIN_CHUNK), -(-num_tokens // longest))
        lengths = self._split(num_tokens, count, longest)
        rows = [Row(self._computed_before(length), length) for length in lengths]
        return [*rows[:-1], rows[-1]._replace(samples=bool(self._rng.random() < 0.5))]

    def fitted(self, family: str, rows: Sequence[Row]) -> Shape:
        """The rows as a shape, contexts shortened in proportion until the KV pool holds them."""
        limits = self.limits
        room = limits.num_blocks * limits.block_size - sum(row.num_new for row in rows) - len(rows) * limits.block_size
        wanted = sum(row.num_computed for row in rows)
        if wanted <= max(room, 0):
            return Shape.of(family, rows)
        scale = max(room, 0) / wanted
        least = [1 if row.num_new == 1 else 0 for row in rows]
        shorter = [max(int(row.num_computed * scale), few) for row, few in zip(rows, least, strict=True)]
        return Shape.of(family, [row._replace(num_computed=at) for row, at in zip(rows, shorter, strict=True)])

    def _decode_rows(self, contexts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[Row]:
        most = max(self.limits.max_context - 1, 1)
        return [Row(context, 1) for context in np.clip(contexts, 1, most).tolist()]

    def _computed_before(self, length: int) -> int:
        room = min(max(self.longest_prompt() - length, 0), self.limits.max_context - length)
        return 0 if self._rng.random() < 0.5 else int(self._rng.integers(0, room + 1))

    def _split(self, total: int, count: int, most: int) -> list[int]:
        """``total`` in ``count`` random parts from MIN_CHUNK to ``most``."""
        parts, left = [], total
        for later in range(count - 1, -1, -1):
            low, high = max(MIN_CHUNK, left - later * most), min(most, left - later * MIN_CHUNK)
            even = left / (later + 1)
            part = int(np.clip(self._rng.uniform(0.4, 1.6) * even, low, high)) if later else left
            parts.append(part)
            left -= part
        return parts
