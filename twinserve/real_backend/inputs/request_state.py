"""What the runner remembers of each request in the batch, by slot.

A slot is taken when a request starts (or resumes) and freed when it finishes or is preempted. Each step then only
brings what changed: new block ids before the step, sampled ids after it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from twinserve.real_backend.inputs.buffers import StepBuffers
from twinserve.real_backend.inputs.prompt_ids import PromptIds
from twinserve.real_backend.inputs.request_tokens import RequestTokens
from twinserve.real_backend.inputs.sampling_table import SamplingTable
from twinserve.sched_core.plan import Ints, StartedRequest, StepPlan
from twinserve.sched_core.requests.spec import RequestSpec


class RequestStates:
    """Token ids, block tables and sampling parameters of as many requests as ``buffers`` has slots.

    Block tables and parameters lie in the staging buffers themselves: nothing has to be gathered for a step.
    """

    def __init__(self, buffers: StepBuffers, *, vocab_size: int, seed: int) -> None:
        num_slots = buffers.capacity.num_slots
        self.tokens = RequestTokens.create(num_slots)
        self.sampling = SamplingTable(buffers.host, num_slots, seed)
        self._block_ids = buffers.host["block_ids"]
        self._filler_block = buffers.filler_block
        self._num_blocks = np.zeros(num_slots, dtype=np.int64)
        self._prompts = PromptIds(vocab_size)
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
        return np.array([*map(self._slot_of.__getitem__, request_ids.tolist())], dtype=np.int64)

    def append_tokens(self, slots: Ints, token_ids: Ints) -> None:
        """The request in ``slots[i]`` sampled ``token_ids[i]``."""
        self.tokens.last_ids[slots] = token_ids

    def expect(self, spec: RequestSpec) -> None:
        """``spec`` was accepted and may start later."""
        self._prompts.expect(spec)

    def prepare(self) -> bool:
        """Some work for requests that will start; False when there is none to be done."""
        return self._prompts.prepare()

    def release(self, request_ids: Iterable[int]) -> None:
        """Frees the slots of requests that left the batch, and forgets what was prepared for those that never start."""
        for request_id in request_ids:
            self._prompts.forget(request_id)
            slot = self._slot_of.pop(request_id, None)
            if slot is not None:
                self._block_ids[slot, : self._num_blocks[slot]] = self._filler_block
                self.tokens.leave(slot)
                self._free_slots.append(slot)

    def _start(self, started: StartedRequest) -> None:
        spec, slot = started.spec, self._free_slots.pop()
        self._slot_of[spec.request_id] = slot
        self.sampling.set(slot, spec)
        ids = self._prompts.take(spec)
        self.tokens.enter(slot, np.append(ids, started.output_token_ids) if started.output_token_ids else ids)
        self._block_ids[slot, : len(started.block_ids)] = started.block_ids
        self._num_blocks[slot] = len(started.block_ids)

    def _append_blocks(self, slots: Ints, plan: StepPlan) -> None:
        """Blocks of rows that were already running (started ones brought their whole table)."""
        counts = plan.num_new_blocks[: plan.num_rows - len(plan.started)]
        growing = counts.nonzero()[0]
        owners, counts = slots[growing], counts[growing]
        total = int(counts.sum())
        if total == len(owners):  # one each: rows that decode, and many of them
            self._block_ids[owners, self._num_blocks[owners]] = plan.new_block_ids[:total]
        else:
            ends = np.cumsum(counts)
            for slot, end, count in zip(owners.tolist(), ends.tolist(), counts.tolist(), strict=True):
                known = self._num_blocks.item(slot)
                self._block_ids[slot, known : known + count] = plan.new_block_ids[end - count : end]
        self._num_blocks[owners] += counts
