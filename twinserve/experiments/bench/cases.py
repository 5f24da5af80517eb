"""The rows of the benchmark: runs of the workload, and single steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.explain import suggest

THROUGHPUT = ("output_throughput",)
TAILS = ("p99_ttft_ms", "p99_tpot_ms", "p99_itl_ms")

HOST_GAP, HOST_GAP_TITLE = "host-gap", "host gap of decode steps at 256 sequences"
BREAKDOWN = "breakdown"

FIXED_KEYS = (
    "backend",
    "engine.max_num_batched_tokens",
    "engine.max_num_seqs",
    "engine.enforce_eager",
    "workload.arrival",
    "metrics.percentiles",
)
"""Settings that every row makes for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingCase:
    """The workload at one token budget, sequence cap and request rate (requests/s); ``figures`` are result.json's."""

    name: str
    budget: int
    seqs: int
    rate: float = inf
    eager: bool = False
    figures: tuple[str, ...]

    @property
    def title(self) -> str:
        rate = "infinite rate" if self.rate == inf else f"rate {self.rate:g}"
        return f"{self.budget} / {self.seqs}, {rate}, {'eager' if self.eager else 'graphs'}"

    def settings(self) -> dict[str, Any]:
        """The experiment settings of the row."""
        values = (
            "real",
            self.budget,
            self.seqs,
            self.eager,
            {"process": "poisson", "request_rate": self.rate},
            [50, 90, 99],
        )
        settings = dict(zip(FIXED_KEYS, values, strict=True))
        return settings | ({"engine.cuda_graph_sizes": None} if self.eager else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCase:
    """One step: ``groups`` of (rows, tokens computed before, new tokens)."""

    name: str
    title: str
    groups: tuple[tuple[int, int, int], ...]

    @property
    def rows(self) -> list[tuple[int, int]]:
        """(num_computed, num_new) of every row."""
        return [(computed, new) for count, computed, new in self.groups for _ in range(count)]


SERVING = (
    ServingCase(name="eager-512", budget=512, seqs=64, eager=True, figures=THROUGHPUT),
    ServingCase(name="graphs-512", budget=512, seqs=64, figures=THROUGHPUT),
    ServingCase(name="graphs-8192", budget=8192, seqs=256, figures=THROUGHPUT),
    ServingCase(name="rate-512", budget=512, seqs=64, rate=8.0, figures=TAILS),
    ServingCase(name="rate-8192", budget=8192, seqs=256, rate=16.0, figures=TAILS),
)
LARGE = SERVING[2]
"""The run whose steps show the host gap, and whose engine runs single steps."""

DECODE_256 = StepCase(name="decode-256", title="256 decodes at 1,024", groups=((256, 1023, 1),))
DECODE_1 = StepCase(name="decode-1", title="1 decode at 1,024", groups=((1, 1023, 1),))
STEPS = (DECODE_256, DECODE_1)
BREAKDOWN_STEPS = (
    DECODE_256,
    StepCase(
        name="mixed-512",
        title="63 decodes at 1,024, a chunk of 449",
        groups=((63, 1023, 1), (1, 0, 449)),
    ),
    StepCase(name="prefill-8192", title="8 prompts of 1,024", groups=((8, 0, 1024),)),
)

NAMES = (*(case.name for case in (*SERVING, *STEPS)), HOST_GAP, BREAKDOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rows that were asked for."""

    names: frozenset[str]

    @property
    def shown_steps(self) -> list[StepCase]:
        return [case for case in STEPS if case.name in self.names]

    @property
    def breakdown(self) -> tuple[StepCase, ...]:
        return BREAKDOWN_STEPS if BREAKDOWN in self.names else ()

    @property
    def steps(self) -> Mapping[str, StepCase]:
        """Every step to be measured, once, by name."""
        return MappingProxyType({case.name: case for case in (*self.shown_steps, *self.breakdown)})

    @property
    def serving(self) -> list[ServingCase]:
        """Runs to be made; the host gap is read from one of them."""
        return [case for case in SERVING if case.name in self.names or (case is LARGE and HOST_GAP in self.names)]


def select(texts: Sequence[str]) -> Selection:
    """The rows that names, or lists of them with commas, ask for; all without any.

    Raises:
        ConfigError: there is no row of that name.
    """
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    for name in names:
        if name not in NAMES:
            raise ConfigError(f"there is no row {name!r}; {suggest(name, NAMES)}", file="--cases")
    return Selection(names=frozenset(names or NAMES))
