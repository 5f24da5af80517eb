"""What the runner remembers of each request in the batch: arrays indexed by slot.

A slot is taken when a request starts (or resumes) and freed when it finishes or is preempted. Each step then only
brings what changed: new block ids before the step, sampled ids after it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from real_backend.errors import EngineError
from real_backend.sampling_table import SamplingTable
from sched_core.plan import Ints, StartedRequest, StepPlan
from sched_core.spec import RequestSpec
from sched_core.token_ids import prompt_token_ids


class RequestStates:
    """Token ids, block tables and sampling parameters of up to ``num_slots`` requests.

    ``token_table`` is (num_slots, max_model_len + 1): the last token of a full-length request is known but never
    computed. ``block_table`` is (num_slots, blocks of a full-length request), with ``filler_block`` behind a request's
    last block.
    """

    def __init__(
        self, *, num_slots: int, max_model_len: int, block_size: int, vocab_size: int, filler_block: int, seed: int
    ) -> None:
        max_blocks = -(-max_model_len // block_size)
        self.token_table = np.zeros((num_slots, max_model_len + 1), dtype=np.int64)
        self.block_table = np.full((num_slots, max_blocks), filler_block, dtype=np.int32)
        self.sampling = SamplingTable(num_slots, seed)
        self._num_blocks = np.zeros(num_slots, dtype=np.int64)
        self._vocab_size = vocab_size
        self._filler_block = filler_block
        self._slot_of: dict[int, int] = {}
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
        return np.array([self._slot_of[request_id] for request_id in request_ids.tolist()], dtype=np.int64)

    def append_tokens(self, slots: Ints, lengths: Ints, token_ids: Ints) -> None:
        """``token_ids[i]`` follows the ``lengths[i]`` known tokens of the request in ``slots[i]``."""
        self.token_table[slots, lengths] = token_ids

    def release(self, request_ids: Iterable[int]) -> None:
        """Frees the slots of requests that left the batch; ids that are not in it are ignored."""
        for request_id in request_ids:
            slot = self._slot_of.pop(request_id, None)
            if slot is not None:
                self.block_table[slot, : self._num_blocks[slot]] = self._filler_block
                self._free_slots.append(slot)

    def _start(self, started: StartedRequest) -> None:
        spec, slot = started.spec, self._free_slots.pop()
        self._slot_of[spec.request_id] = slot
        self.sampling.set(slot, spec)
        num_prompt = spec.num_prompt_tokens
        tokens = self.token_table[slot]
        tokens[:num_prompt] = self._prompt_ids(spec)
        tokens[num_prompt : num_prompt + len(started.output_token_ids)] = started.output_token_ids
        self.block_table[slot, : len(started.block_ids)] = started.block_ids
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
        self.block_table[owners, places] = plan.new_block_ids[: len(owners)]
        self._num_blocks[slots[: len(counts)]] += counts
