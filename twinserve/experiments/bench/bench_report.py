"""The results of a benchmark as plain values, ready for tables, a picture and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

Figures: TypeAlias = Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One row of the table. ``figures``, ``limit`` and the ``published`` of each engine have the same keys.

    ``reason`` says why there are no figures, ``note`` what to know about them; ``failed`` marks a run that broke off.
    """

    name: str
    title: str
    unit: str
    figures: Figures = field(default_factory=dict)
    limit: Figures = field(default_factory=dict)
    published: Mapping[str, Figures] = field(default_factory=dict)
    run_id: str | None = None
    reason: str | None = None
    note: str | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """One step taken apart (ms): each part's time and floor.

    ``parts`` is None where kernels cannot be traced, ``floors`` where the device's peaks are unknown. ``step_ms`` runs
    from one step's begin to the next one's, ``device_ms`` of it on the device.
    """

    name: str
    title: str
    graph_mode: str | None = None
    num_padded_tokens: int | None = None
    step_ms: float | None = None
    device_ms: float | None = None
    parts: Mapping[str, float] | None = None
    floors: Mapping[str, float] | None = None
    kernels: tuple[Mapping[str, Any], ...] = ()
    reason: str | None = None

    @property
    def launch(self) -> str:
        """How the step was launched, in words."""
        return "eager" if self.graph_mode == "eager" else f"{self.graph_mode} graph of {self.num_padded_tokens}"

    @property
    def host_gap_ms(self) -> float | None:
        """The step time minus the time on the device."""
        return None if self.step_ms is None or self.device_ms is None else self.step_ms - self.device_ms

    @property
    def sum_ms(self) -> float | None:
        """All parts and the host gap; less than the step by the pauses between kernels."""
        gap = self.host_gap_ms
        return None if self.parts is None or gap is None else sum(self.parts.values()) + gap


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """Everything; ``peaks`` are None on the CPU."""

    device: Mapping[str, Any]
    model: Mapping[str, Any]
    engine: Mapping[str, Any]
    peaks: Mapping[str, float] | None
    rows: tuple[BenchRow, ...]
    breakdown: tuple[StepParts, ...]

    @property
    def is_success(self) -> bool:
        """Whether no run broke off and something was measured."""
        measured = any(row.reason is None for row in self.rows) or any(step.reason is None for step in self.breakdown)
        return measured and not any(row.failed for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """In JSON's types, with the sums of the breakdown."""
        steps = [asdict(step) | {"host_gap_ms": step.host_gap_ms, "sum_ms": step.sum_ms} for step in self.breakdown]
        return {
            "device": dict(self.device),
            "model": dict(self.model),
            "engine": dict(self.engine),
            "peaks": None if self.peaks is None else dict(self.peaks),
            "rows": [asdict(row) for row in self.rows],
            "breakdown": steps,
        }
