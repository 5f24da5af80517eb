"""The requests in the batch, by slot, and the inputs of each step made from them (vLLM's ``InputBatch``).

A slot is taken when a request starts (or resumes) and freed when it finishes or is preempted. Each step then only
brings what changed: new block ids before the step, sampled ids after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from twinserve.real_backend.inputs.batch import FlatBatch, build_batch
from twinserve.real_backend.inputs.buffers import StepBuffers
from twinserve.real_backend.inputs.prompt_prefetch import PromptPrefetch
from twinserve.real_backend.inputs.request_tokens import RequestTokens
from twinserve.real_backend.inputs.sampling_table import SamplingRows, SamplingTable
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes, Dispatch, dispatch
from twinserve.sched_core.plan import Ints, StartedRequest, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepInputs:
    """A plan as a flat batch; ``slots`` are those of its sampling rows, ``choice`` is the graph that it runs in."""

    plan: StepPlan
    batch: FlatBatch
    sampling: SamplingRows
    choice: Dispatch
    slots: Ints


class InputBatch:
    """Token ids, block tables and sampling parameters of as many requests as ``buffers`` has slots.

    Block tables and parameters lie in the buffers themselves: nothing has to be gathered for a step. ``prefetch`` has
    the prompts of requests that may start later.
    """

    def __init__(
        self, buffers: StepBuffers, *, vocab_size: int, seed: int, capture_sizes: CaptureSizes = NO_GRAPHS
    ) -> None:
        num_slots = buffers.capacity.num_slots
        self.buffers = buffers
        self.capture_sizes = capture_sizes
        self._vocab_size = vocab_size
        self._sampling = SamplingTable(buffers.host, num_slots, seed, vocab_size)
        self._block_ids = buffers.host["block_ids"]
        self._num_blocks = np.zeros(num_slots, dtype=np.int64)
        self._slot_of: dict[int, int] = {}
        self.forget_all()

    def forget_all(self) -> None:
        """Every slot is free and nothing is known of any request, whatever a step that failed left behind."""
        num_slots = self.buffers.capacity.num_slots
        self.prefetch = PromptPrefetch(self._vocab_size)
        self._tokens = RequestTokens.create(num_slots)
        self._block_ids.fill(self.buffers.filler_block)
        self._num_blocks.fill(0)
        self._slot_of.clear()
        self._free_slots = list(range(num_slots))[::-1]

    def prepare(self, plan: StepPlan) -> StepInputs:
        """The inputs of ``plan``, from what it brings and what is known of its requests; the buffers stay as they are.

        Raises:
            EngineError: a prompt has ids that the model does not know.
        """
        slots = self.update(plan)
        batch = build_batch(plan, self._tokens, slots)
        ends = plan.num_computed + plan.num_new
        if plan.num_samples < len(slots):
            slots, ends = slots[plan.samples], ends[plan.samples]
        sampling = self._sampling.rows(slots, ends)
        choice = dispatch(plan.num_tokens, plan.num_rows, self.capture_sizes)
        return StepInputs(plan=plan, batch=batch, sampling=sampling, choice=choice, slots=slots)

    def update(self, plan: StepPlan) -> Ints:
        """Takes in what ``plan`` brings; returns the slot of each of its rows."""
        self.release(plan.preempted)
        for started in plan.started:
            self._start(started)
        slots = np.array([*map(self._slot_of.__getitem__, plan.request_ids.tolist())], dtype=np.int64)
        if len(plan.new_block_ids):
            self._append_blocks(slots, plan)
        return slots

    def append_sampled(self, step: StepInputs, token_ids: Ints) -> None:
        """The ids that the step sampled, one per sampling row."""
        self._tokens.last_token_ids[step.slots] = token_ids

    def release(self, request_ids: Iterable[int]) -> None:
        """Frees the slots of requests that left the batch, and drops the prompts of those that never start.

        Unknown ids are ignored.
        """
        for request_id in request_ids:
            self.prefetch.drop(request_id)
            slot = self._slot_of.pop(request_id, None)
            if slot is not None:
                self._block_ids[slot, : self._num_blocks[slot]] = self.buffers.filler_block
                self._tokens.leave(slot)
                self._free_slots.append(slot)

    def _start(self, started: StartedRequest) -> None:
        spec, slot = started.spec, self._free_slots.pop()
        self._slot_of[spec.request_id] = slot
        self._sampling.set(slot, spec)
        token_ids = self.prefetch.take(spec)
        if started.output_token_ids:
            token_ids = np.append(token_ids, started.output_token_ids)
        self._tokens.enter(slot, token_ids)
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
