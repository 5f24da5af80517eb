"""The sweep file as typed settings, and the points that it defines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, product
from math import prod
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from twinserve.experiments.settings.schema import PositiveInt, Section, Seed

Settings: TypeAlias = dict[str, Any]
"""Dotted key -> value."""

Values: TypeAlias = Annotated[list[Any], Field(min_length=1)]


MAX_POINTS = 100_000
"""Points of one sweep, counted before any is made."""


class ExecutorSection(Section):
    """Where points run; ``workers`` null means one per CPU (``processes``) or what the cluster has."""

    kind: Literal["processes", "serial", "dask", "ray"] = "processes"
    workers: PositiveInt | None = None
    address: str | None = None


class ReportSection(Section):
    """The report of a sweep: comparison plots below ``plots/``."""

    plots: bool = True


class SweepConfig(Section):
    """Many experiments that differ from ``base`` in dotted keys.

    The points are every combination of the lists in ``matrix`` and of the rows of ``zip`` (lists that are walked
    together), without those that match an entry of ``exclude`` (all its keys; a list there means any of its values),
    then the entries of ``include``; each of them once per seed.
    """

    name: str | None = None
    base: str | dict[str, Any]
    matrix: dict[str, Values] = Field(default_factory=dict)
    zip: dict[str, Values] = Field(default_factory=dict)
    include: list[Settings] = Field(default_factory=list)
    exclude: list[Settings] = Field(default_factory=list)
    seeds: Annotated[list[Seed], Field(min_length=1)] | None = None
    executor: ExecutorSection = ExecutorSection()
    report: ReportSection = ReportSection()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        lengths = {key: len(values) for key, values in self.zip.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"zip lists differ in length ({lengths}); they are walked together, make them equal")
        twice = self.matrix.keys() & self.zip.keys()
        if twice:
            raise ValueError(f"{', '.join(sorted(twice))} is in both matrix and zip; keep one of them")
        if self.seeds is not None and "seed" in self.swept_settings():
            raise ValueError("seeds and a swept `seed` are both given; keep one of them")
        unknown = {key for entry in self.exclude for key in entry} - {*self.matrix, *self.zip}
        if unknown:
            raise ValueError(f"exclude names {', '.join(sorted(unknown))}, which neither matrix nor zip sweeps")
        if self.num_points() > MAX_POINTS:
            counted = f"{self.num_points():,}" if self.num_points() < 10**15 else "over 10**15"
            raise ValueError(
                f"gives {counted} points, before exclude; at most {MAX_POINTS:,}: make several sweeps of it"
            )
        return self

    def num_points(self) -> int:
        """How many points there are, those that ``exclude`` takes away counted too."""
        rows = max(map(len, self.zip.values()), default=1)
        combined = prod(map(len, self.matrix.values())) * rows if self._combines() else 0
        return (combined + len(self.include)) * (1 if self.seeds is None else len(self.seeds))

    def swept_settings(self) -> list[str]:
        """The dotted keys that points set, in the order of the file; without ``seeds``."""
        return list(dict.fromkeys([*self.matrix, *self.zip, *(key for entry in self.include for key in entry)]))

    def swept(self) -> list[str]:
        """The dotted keys in which points differ."""
        return [*self.swept_settings(), *(["seed"] if self.seeds is not None else [])]

    def points(self) -> Iterator[Settings]:
        """The settings of every point, in a fixed order."""
        combinations = (point for point in self._combinations() if not self._is_excluded(point))
        for point in chain(combinations, self.include):
            yield from [point] if self.seeds is None else ({**point, "seed": seed} for seed in self.seeds)

    def _combines(self) -> bool:
        """Whether there are points besides those of ``include``: without any, the base is the one."""
        return bool(self.matrix or self.zip or not self.include)

    def _combinations(self) -> Iterator[Settings]:
        if not self._combines():
            return
        rows = [dict(zip(self.zip, row, strict=True)) for row in zip(*self.zip.values(), strict=True)] or [{}]
        for values in product(*self.matrix.values()):
            for row in rows:
                yield {**dict(zip(self.matrix, values, strict=True)), **row}

    def _is_excluded(self, point: Settings) -> bool:
        return any(_matches(point, entry) for entry in self.exclude)


def _matches(point: Settings, entry: Mapping[str, Any]) -> bool:
    return all(
        point[key] in wanted if isinstance(wanted, list) else point[key] == wanted for key, wanted in entry.items()
    )
