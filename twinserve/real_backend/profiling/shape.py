"""A step to measure, as what each of its rows computes; no requests yet, and no device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from twinserve.sched_core.config import SchedulerConfig


class Row(NamedTuple):
    """A request's part of a step: ``num_new`` tokens after ``num_computed``; ``samples`` when its prompt ends there."""

    num_computed: int
    num_new: int
    samples: bool = True

    @property
    def context(self) -> int:
        return self.num_computed + self.num_new

    @property
    def num_known(self) -> int:
        """Tokens of the request: one more than the step computes when it leaves some of the prompt for later."""
        return self.context + (not self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Rows as a scheduler lists them: decodes, then chunks of running requests, then new requests."""

    family: str
    rows: tuple[Row, ...]

    @classmethod
    def of(cls, family: str, rows: Iterable[Row]) -> Shape:
        return cls(family=family, rows=tuple(sorted(rows, key=lambda row: (row.num_new > 1, row.num_computed == 0))))

    @property
    def num_tokens(self) -> int:
        return sum(row.num_new for row in self.rows)

    def num_blocks(self, block_size: int) -> int:
        return sum(-(-row.context // block_size) for row in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an engine can run in one step, with the names of ``SchedulerConfig``."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    num_blocks: int
    block_size: int

    @classmethod
    def of(cls, scheduler: SchedulerConfig) -> Limits:
        return cls(**{name: getattr(scheduler, name) for name in cls.__dataclass_fields__})

    @property
    def max_rows(self) -> int:
        return min(self.max_num_seqs, self.max_num_batched_tokens)

    @property
    def max_context(self) -> int:
        """Keys of the longest request that can still sample: a request ends when it knows ``max_model_len`` tokens."""
        return self.max_model_len - 1

    def admits(self, shape: Shape) -> bool:
        """Whether the engine could run this step."""
        return (
            0 < len(shape.rows) <= self.max_num_seqs
            and shape.num_tokens <= self.max_num_batched_tokens
            and all(row.context <= self.max_context for row in shape.rows)
            and shape.num_blocks(self.block_size) <= self.num_blocks
        )
