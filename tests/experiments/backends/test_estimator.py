"""A budget policy may ask how long a step would take; asking changes nothing."""

from __future__ import annotations

import pytest

from tests.experiments.helpers.small_experiments import small
from twinserve.experiments.config.load import experiment_of
from twinserve.experiments.run import run_experiment

ASKING = """
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.features import StepFeatures


class Asking:
    def __init__(self, estimator):
        self._estimator = estimator

    def tokens(self, state, now):
        step = StepFeatures(64, 1, 0, 0, 64, 2080, 64, 1, 0, GraphMode.MIXED, 64)
        assert all(self._estimator.seconds(step) > 0 for _ in range(20))
        return 64
"""


CALIBRATIONS = ("h200-qwen3-8b-graphs", "h200-qwen3-0.6b-graphs")


@pytest.mark.parametrize(
    "cost_model",
    [*({"kind": "calibration", "file": name} for name in CALIBRATIONS), {"kind": "roofline", "hardware": "h200"}],
)
def test_a_policy_that_asks_the_estimator_gets_the_run_of_one_that_does_not(tmp_path, monkeypatch, cost_model):
    (tmp_path / "asking_budget.py").write_text(ASKING, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    data = small(
        sim={"cost_model": cost_model}, model={"name": "Qwen/Qwen3-8B"}, workload__arrival__request_rate=1000.0
    )
    results = []
    for budget in ("fixed", "asking_budget:Asking"):
        experiment = experiment_of(
            {**data, "engine": {**data["engine"], "budget": budget}}, source="test", base_dir=tmp_path
        )
        result = dict(run_experiment(experiment, tmp_path / "out", code="x").result)
        results.append({key: value for key, value in result.items() if key not in ("run_id", "budget")})
    assert results[0] == results[1]
