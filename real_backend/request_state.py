"""What the runner remembers of each request in the batch: arrays indexed by slot.

A slot is taken when a request starts (or resumes) and freed when it finishes or is preempted. Each step then only
brings what changed: new block ids before the step, sampled ids after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from real_backend.errors import EngineError
from real_backend.int_arrays import Int32s
from real_backend.sampling_table import SamplingTable
from sched_core.plan import Ints, StartedRequest, StepPlan
from sched_core.spec import RequestSpec
from sched_core.token_ids import prompt_token_ids


@dataclass(frozen=True, slots=True, eq=False)
class RequestTables:
    """One row per slot.

    ``token_ids`` is (slots, max_model_len + 1): the last token of a full-length request is known but never computed.
    ``block_ids`` is (slots, blocks of a full-length request), with the filler block behind a request's last one.
    ``tenants`` numbers the requests that were given a slot, in order: a new number is a new content.
    """

    token_ids: Ints
    block_ids: Int32s
    tenants: Ints
    block_size: int


class RequestStates:
    """Token ids, block tables and sampling parameters of up to ``num_slots`` requests."""

    def __init__(
        self, *, num_slots: int, max_model_len: int, block_size: int, vocab_size: int, filler_block: int, seed: int
    ) -> None:
        max_blocks = -(-max_model_len // block_size)
        self.tables = RequestTables(
            token_ids=np.zeros((num_slots, max_model_len + 1), dtype=np.int64),
            block_ids=np.full((num_slots, max_blocks), filler_block, dtype=np.int32),
            tenants=np.zeros(num_slots, dtype=np.int64),
            block_size=block_size,
        )
        self.sampling = SamplingTable(num_slots, seed)
        self._num_blocks = np.zeros(num_slots, dtype=np.int64)
        self._num_tenants = 0
        self._vocab_size = vocab_size
        self._filler_block = filler_block
        self._slot_of: dict[int, int] = {}
        self._last_ids: Ints = np.empty(0, dtype=np.int64)
        self._last_slots: Ints = self._last_ids
        self._free_slots = list(range(num_slots))[::-1]

    def apply(self, plan: StepPlan) -> Ints:
        """Takes in what ``plan`` brings; returns the slot of each of its rows."""
        self.release(plan.preempted)
        for started in plan.started:
            self._start(started)
        slots = self.slots_of(plan.request_ids)
        if len(plan.new_block_ids):
            self._append_blocks(slots, plan)
        return slots

    def slots_of(self, request_ids: Ints) -> Ints:
        """The array of the last call, when nobody has come or gone since and the rows are the same."""
        if not np.array_equal(request_ids, self._last_ids):
            slots = [*map(self._slot_of.__getitem__, request_ids.tolist())]
            self._last_ids, self._last_slots = request_ids, np.array(slots, dtype=np.int64)
        return self._last_slots

    def append_tokens(self, slots: Ints, lengths: Ints, token_ids: Ints) -> None:
        """``token_ids[i]`` follows the ``lengths[i]`` known tokens of the request in ``slots[i]``."""
        self.tables.token_ids[slots, lengths] = token_ids

    def release(self, request_ids: Iterable[int]) -> None:
        """Frees the slots of requests that left the batch; ids that are not in it are ignored."""
        for request_id in request_ids:
            slot = self._slot_of.pop(request_id, None)
            if slot is not None:
                self._last_ids = self._last_ids[:0]
                self.tables.block_ids[slot, : self._num_blocks[slot]] = self._filler_block
                self._free_slots.append(slot)

    def _start(self, started: StartedRequest) -> None:
        spec, slot = started.spec, self._free_slots.pop()
        self._last_ids = self._last_ids[:0]
        self._slot_of[spec.request_id] = slot
        self._num_tenants += 1
        self.tables.tenants[slot] = self._num_tenants
        self.sampling.set(slot, spec)
        num_prompt = spec.num_prompt_tokens
        tokens = self.tables.token_ids[slot]
        tokens[:num_prompt] = self._prompt_ids(spec)
        tokens[num_prompt : num_prompt + len(started.output_token_ids)] = started.output_token_ids
        self.tables.block_ids[slot, : len(started.block_ids)] = started.block_ids
        self._num_blocks[slot] = len(started.block_ids)

    def _prompt_ids(self, spec: RequestSpec) -> Ints:
        """Checked here, since on a GPU a wrong id kills the process's use of the device."""
        ids = prompt_token_ids(spec.prompt, self._vocab_size)
        if not 0 <= ids.min() <= ids.max() < self._vocab_size:
            raise EngineError(
                f"request {spec.request_id}: its prompt has token ids outside the vocabulary of {self._vocab_size}"
            )
        return ids

    def _append_blocks(self, slots: Ints, plan: StepPlan) -> None:
        """Blocks of rows that were already running (started ones brought their whole table)."""
        counts = plan.num_new_blocks[: plan.num_rows - len(plan.started)]
        owners = np.repeat(slots[: len(counts)], counts)
        first = np.cumsum(counts) - counts
        places = np.arange(len(owners)) - np.repeat(first, counts) + self._num_blocks[owners]
        self.tables.block_ids[owners, places] = plan.new_block_ids[: len(owners)]
        self._num_blocks[slots[: len(counts)]] += counts
