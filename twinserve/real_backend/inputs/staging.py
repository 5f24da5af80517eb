"""What the host does for a step before its launch and after its end, while the device has nothing to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twinserve.real_backend.inputs.batch import FlatBatch, build_batch
from twinserve.real_backend.inputs.buffers import StepBuffers
from twinserve.real_backend.inputs.request_state import RequestStates
from twinserve.real_backend.inputs.sampling_table import SamplingRows
from twinserve.sched_core.dispatch import NO_GRAPHS, CaptureSizes, Dispatch, dispatch
from twinserve.sched_core.plan import Ints, StepPlan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StagedStep:
    """A plan whose inputs lie in the staging buffers; ``slots`` are those of its sampling rows."""

    plan: StepPlan
    batch: FlatBatch
    sampling: SamplingRows
    choice: Dispatch
    slots: Ints


class StepStaging:
    """From plans to filled buffers, and from sampled ids to what the next plan's inputs are made of."""

    def __init__(self, states: RequestStates, buffers: StepBuffers, capture_sizes: CaptureSizes = NO_GRAPHS) -> None:
        self.buffers = buffers
        self.capture_sizes = capture_sizes
        self.states = states

    def stage(self, plan: StepPlan) -> StagedStep:
        """Fills the buffers for ``plan``. Raises EngineError for a prompt with ids that the model does not know."""
        step = self.build(plan)
        self.fill(step)
        return step

    def build(self, plan: StepPlan) -> StagedStep:
        """The first half of ``stage``: takes in what the plan brings and works out the step's inputs."""
        slots = self.states.apply(plan)
        batch = build_batch(plan, self.states.tokens, slots)
        ends = plan.num_computed + plan.num_new
        if plan.num_samples < len(slots):
            slots, ends = slots[plan.samples], ends[plan.samples]
        sampling = self.states.sampling.rows(slots, ends)
        choice = dispatch(plan.num_tokens, plan.num_rows, self.capture_sizes)
        return StagedStep(plan=plan, batch=batch, sampling=sampling, choice=choice, slots=slots)

    def fill(self, step: StagedStep) -> None:
        """The second half: writes them where the device finds them."""
        self.buffers.fill(step.batch, step.choice)

    def keep(self, step: StagedStep, token_ids: Ints) -> None:
        """The ids that the step sampled, one per sampling row."""
        self.states.append_tokens(step.slots, token_ids)

    def release(self, request_ids: Iterable[int]) -> None:
        """Forgets requests that have finished; unknown ids are ignored."""
        self.states.release(request_ids)
