"""Policies by name, or by import path ``package.module:Name``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

from twinserve.sched_core.policies import admission, budget, composition, order, victim
from twinserve.sched_core.policies.interfaces import (
    AdmissionControl,
    BatchComposition,
    QueueOrder,
    StepTimeEstimator,
    TokenBudget,
    VictimChoice,
)

_REGISTRY: Mapping[str, Mapping[str, type[Any]]] = MappingProxyType(
    {
        "policy": MappingProxyType(
            {
                "mixed": composition.Mixed,
                "decode_first": composition.DecodeFirst,
                "prefill_first": composition.PrefillFirst,
                "static": composition.Static,
            }
        ),
        "order": MappingProxyType(
            {"fcfs": order.FirstComeFirstServed, "priority": order.Priority, "sjf": order.ShortestJobFirst}
        ),
        "victim": MappingProxyType({"last": victim.Last, "lowest_priority": victim.LowestPriority}),
        "budget": MappingProxyType({"fixed": budget.FixedBudget}),
        "admission": MappingProxyType({"always": admission.AlwaysAdmit}),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The five decisions that make a scheduling policy."""

    composition: BatchComposition
    order: QueueOrder
    victim: VictimChoice
    budget: TokenBudget
    admission: AdmissionControl


def names() -> dict[str, tuple[str, ...]]:
    """Built-in names for each seam: policy, order, victim, budget, admission."""
    return {seam: tuple(entries) for seam, entries in _REGISTRY.items()}


def build_policies(
    *,
    policy: str = "mixed",
    order: str = "fcfs",
    victim: str = "last",
    budget: str = "fixed",
    admission: str = "always",
    estimator: StepTimeEstimator | None = None,
) -> Policies:
    """Build every policy afresh (they may hold state); raises ValueError for an unknown name.

    A class whose constructor takes ``estimator`` is given the injected step-time estimator.
    """

    def build(seam: str, name: str) -> Any:
        kind = _resolve(seam, name)
        wants_estimator = "estimator" in inspect.signature(kind).parameters
        return kind(estimator=estimator) if wants_estimator else kind()

    return Policies(
        composition=build("policy", policy),
        order=build("order", order),
        victim=build("victim", victim),
        budget=build("budget", budget),
        admission=build("admission", admission),
    )


def _resolve(seam: str, name: str) -> type[Any]:
    if ":" in name:
        return _import(seam, name)
    try:
        return _REGISTRY[seam][name]
    except KeyError:
        known = ", ".join(_REGISTRY[seam])
        raise ValueError(f"unknown {seam} {name!r}; known: {known}, or an import path package.module:Name") from None


def _import(seam: str, path: str) -> type[Any]:
    module_name, _, attribute = path.partition(":")
    try:
        found = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"cannot load {seam} {path!r}: {error}") from None
    if not isinstance(found, type):
        raise ValueError(f"{seam} {path!r} is not a class")
    return found
