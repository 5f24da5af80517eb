"""The rows of a sweep's summary, made from stored results alone so that a resumed sweep gives the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from twinserve.experiments.files.csv_file import CsvRow
from twinserve.experiments.sweep.points import Point

AVERAGED = ("duration", "_ms", "_throughput", "_goodput")
"""Ends of the names of figures that differ between seeds."""


def summary_rows(finished: Iterable[tuple[Point, Mapping[str, Any]]]) -> list[CsvRow]:
    """One row per finished point: run id, swept keys, then every figure of its result that is a single value."""
    return [_row(point, result) for point, result in finished]


def seed_rows(finished: Iterable[tuple[Point, Mapping[str, Any]]]) -> list[CsvRow]:
    """One row per group of points that differ in the seed only: means of the per-seed figures and their intervals."""
    from twinserve.experiments.metrics import aggregate_seeds

    groups: dict[str, list[Mapping[str, Any]]] = {}
    keys: dict[str, CsvRow] = {}
    for point, result in finished:
        key = {name: _cell(value) for name, value in point.settings.items() if name != "seed"}
        group = json.dumps(key)
        keys[group] = key
        groups.setdefault(group, []).append({k: v for k, v in result.items() if k.endswith(AVERAGED)})
    rows = []
    for group, results in groups.items():
        row = {**keys[group], "num_seeds": len(results)}
        for name, mean in aggregate_seeds(results).items():
            row |= {name: mean.mean, f"{name}_low": mean.low, f"{name}_high": mean.high}
        rows.append(row)
    return rows


def _row(point: Point, result: Mapping[str, Any]) -> CsvRow:
    settings = {key: _cell(value) for key, value in point.settings.items()}
    figures = {key: value for key, value in result.items() if not isinstance(value, Mapping | list)}
    return {"run_id": result["run_id"], **settings, **{k: v for k, v in figures.items() if k not in settings}}


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, Mapping | list | tuple) else value
