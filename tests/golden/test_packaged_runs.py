"""The packaged experiments decide and report what they did when their values were recorded.

``python -m tests.golden.test_packaged_runs`` records them anew, after a change that is meant to move them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.golden.packaged_runs import PLAIN, SWEEPS, TRACES, experiments, outcome
from tests.paths import DATA

RECORDED = DATA / "packaged_runs.json"


@pytest.mark.parametrize("name", [*PLAIN, *SWEEPS, *TRACES])
def test_decisions_and_results_are_the_recorded_ones(name: str) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    for label, experiment in experiments(name):
        found = outcome(experiment)
        assert found["decisions"] == recorded[label]["decisions"], label
        assert found["result"].keys() == recorded[label]["result"].keys(), label
        assert rounded(found["result"]) == rounded(recorded[label]["result"]), label


def test_every_packaged_experiment_is_recorded() -> None:
    from twinserve.experiments.settings.paths import packaged_experiments

    assert {*PLAIN, *SWEEPS, *TRACES, "bench/engine"} == set(packaged_experiments())


def rounded(data: Any) -> Any:
    """``data`` with 12 digits of every number: processors add in different orders."""
    if isinstance(data, dict):
        return {key: rounded(value) for key, value in data.items()}
    if isinstance(data, list):
        return [rounded(value) for value in data]
    return float(f"{data:.12g}") if isinstance(data, float) else data


def record() -> None:
    names = (*PLAIN, *SWEEPS, *TRACES)
    outcomes = {label: outcome(experiment) for name in names for label, experiment in experiments(name)}
    RECORDED.write_text(json.dumps(outcomes, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
