"""The five seams, what is built in for each of them, and policies built from names, import paths or classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any

from twinserve.sched_core.policies import admission, budget, composition, order, victim
from twinserve.sched_core.policies.choice import PolicyChoice, PolicyError, checked, construct, resolve, takes_estimator
from twinserve.sched_core.policies.interfaces import (
    AdmissionControl,
    BatchComposition,
    QueueOrder,
    StepTimeEstimator,
    TokenBudget,
    VictimChoice,
)


def _seam(name: str, **built_in: type[Any]) -> Mapping[str, Any]:
    """A seam that is called ``name`` in configurations; its first built-in policy is the default."""
    return {"seam": name, "built_in": MappingProxyType(built_in)}


_POLICY = _seam(
    "policy",
    mixed=composition.Mixed,
    decode_first=composition.DecodeFirst,
    prefill_first=composition.PrefillFirst,
    static=composition.Static,
)
_ORDER = _seam("order", fcfs=order.FirstComeFirstServed, priority=order.Priority, sjf=order.ShortestJobFirst)
_VICTIM = _seam("victim", last=victim.Last, lowest_priority=victim.LowestPriority)
_BUDGET = _seam("budget", fixed=budget.FixedBudget)
_ADMISSION = _seam("admission", always=admission.AlwaysAdmit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The five decisions that make a scheduling policy. This is the one list of the seams."""

    composition: BatchComposition = field(metadata=_POLICY)
    order: QueueOrder = field(metadata=_ORDER)
    victim: VictimChoice = field(metadata=_VICTIM)
    budget: TokenBudget = field(metadata=_BUDGET)
    admission: AdmissionControl = field(metadata=_ADMISSION)


BUILT_IN: Mapping[str, Mapping[str, type[Any]]] = MappingProxyType(
    {part.metadata["seam"]: part.metadata["built_in"] for part in fields(Policies)}
)
"""Seam -> name -> class."""

_PROTOCOLS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "policy": BatchComposition,
        "order": QueueOrder,
        "victim": VictimChoice,
        "budget": TokenBudget,
        "admission": AdmissionControl,
    }
)

DEFAULTS: Mapping[str, str] = MappingProxyType({seam: next(iter(known)) for seam, known in BUILT_IN.items()})
"""Seam -> the name that stands for it where nothing is chosen: vLLM's behaviour."""


def names() -> dict[str, tuple[str, ...]]:
    """Built-in names for each seam: policy, order, victim, budget, admission."""
    return {seam: tuple(known) for seam, known in BUILT_IN.items()}


def build_policies(*, estimator: StepTimeEstimator | None = None, **choices: PolicyChoice) -> Policies:
    """Build every policy afresh (they may hold state).

    ``choices`` are by seam (``order="sjf"``); seams that are left out get their default. A choice is a built-in
    name, an import path ``package.module:Name``, a class (or another callable that makes a policy), or a mapping of
    ``use`` (any of these) and keyword parameters. One that takes ``estimator`` is given the step-time estimator.

    Raises:
        PolicyError: an unknown seam, name or parameter, a parameter that is missing or that the policy refuses, a
            policy that takes an estimator where there is none, or one that lacks a method of its seam.
    """
    unknown = choices.keys() - BUILT_IN.keys()
    if unknown:
        seam = min(unknown)
        raise PolicyError(f"there is no such seam; known: {', '.join(BUILT_IN)}", seam=seam)
    chosen = {**DEFAULTS, **choices}
    built = {
        part.name: checked(seam, construct(seam, chosen[seam], BUILT_IN[seam], estimator), _PROTOCOLS[seam])
        for part, seam in zip(fields(Policies), BUILT_IN, strict=True)
    }
    return Policies(**built)


def seams_with_estimator(choices: Mapping[str, PolicyChoice]) -> tuple[str, ...]:
    """The seams whose choice takes a step-time estimator.

    Raises:
        PolicyError: a choice cannot be loaded.
    """
    return tuple(seam for seam, choice in choices.items() if takes_estimator(resolve(seam, choice, BUILT_IN[seam])))
