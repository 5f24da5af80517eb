"""Batch compositions: what a step holds and in which order."""

from __future__ import annotations

from twinserve.sched_core.policies.interfaces import Rows, StepDraft


class Mixed:
    """vLLM V1: running requests in order of admission, whatever they need, then waiting ones."""

    def compose(self, step: StepDraft) -> None:
        step.run(Rows.ALL)
        step.admit()


class DecodeFirst:
    """Sarathi-Serve's stall-free batching (OSDI'24): every decode, then unfinished prefills, then new requests.

    Beside decodes at most ``max_prefill_tokens`` tokens of prompts (None: no cap).
    """

    def __init__(self, max_prefill_tokens: int | None = None) -> None:
        if max_prefill_tokens is not None and max_prefill_tokens < 1:
            raise ValueError("max_prefill_tokens must be at least 1")
        self._max_prefill_tokens = max_prefill_tokens

    def compose(self, step: StepDraft) -> None:
        step.run(Rows.DECODES)
        cap = None if step.is_empty else self._max_prefill_tokens
        before = step.budget
        step.run(Rows.PREFILLS, at_most=cap)
        step.admit(at_most=None if cap is None else cap - (before - step.budget))


class PrefillFirst:
    """nano-vllm: steps of prefills only while there are any, else steps of decodes only.

    Only the first prompt of a step is cut to the budget. Unlike nano-vllm, ``max_num_seqs`` holds across steps.
    """

    def compose(self, step: StepDraft) -> None:
        step.run(Rows.PREFILLS)
        step.admit(split_first_only=True)
        if step.is_empty:
            step.run(Rows.DECODES)


class Static:
    """Classic static batching: fill the batch up to ``max_num_seqs``, then decode until every request has ended."""

    def compose(self, step: StepDraft) -> None:
        step.run(Rows.PREFILLS)
        if step.batch_is_fresh:
            step.admit()
        if step.is_empty:
            step.run(Rows.DECODES)
