"""A policy may ask how long a step would take, on either backend alike; asking changes nothing."""

from __future__ import annotations

import pytest

from tests.experiments.helpers.small_experiments import small
from twinserve.experiments.backends.scheduler import engine_policies
from twinserve.experiments.config.load import Experiment, experiment_of
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.identity import identify
from twinserve.experiments.run import run_experiment
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sched_core.features import StepFeatures

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


def asking(tmp_path, monkeypatch, backend: str, sim: object) -> Experiment:
    (tmp_path / "asking_budget.py").write_text(ASKING, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    data = small(backend=backend, sim=sim, engine__budget="asking_budget:Asking", model={"load_format": "dummy"})
    return experiment_of(data, source="test", base_dir=tmp_path)


def test_a_real_run_gives_policies_the_estimator_of_the_simulator(tmp_path, monkeypatch):
    sim = {"cost_model": {"kind": "linear", "base_ms": 5.0, "per_token_ms": 0.1}}
    step = StepFeatures(64, 1, 0, 0, 64, 2080, 64, 1, 0, GraphMode.EAGER, 64)
    seconds = [
        engine_policies(asking(tmp_path, monkeypatch, backend, sim)).budget._estimator.seconds(step)
        for backend in ("sim", "real")
    ]
    assert seconds[0] == seconds[1] == pytest.approx(0.0114)


@pytest.mark.parametrize(
    ("backend", "sim", "complaint"),
    [
        ("real", None, "engine.budget: takes a step-time estimator, and there is no `sim:` section; give sim.cost_mod"),
        (
            "real",
            {"cost_model": {"kind": "replay", "run": "somewhere"}},
            "engine.budget: takes a step-time estimator, and",
        ),
        ("sim", {"cost_model": {"kind": "replay", "run": "somewhere"}}, "a replay predicts no step times"),
    ],
)
def test_a_policy_that_needs_step_times_is_refused_where_nothing_predicts_them(
    tmp_path, monkeypatch, backend, sim, complaint
):
    experiment = asking(tmp_path, monkeypatch, backend, sim)
    with pytest.raises(ConfigError) as caught:
        engine_policies(experiment)
    assert complaint in str(caught.value)


def test_the_id_of_a_real_run_covers_the_step_times_that_its_policies_ask_for(tmp_path, monkeypatch):
    models = [{"cost_model": {"kind": "linear", "base_ms": base_ms}} for base_ms in (1.0, 2.0)]
    asked = {identify(asking(tmp_path, monkeypatch, "real", sim), "x").run_id for sim in models}
    others = {
        identify(experiment_of(small(backend="real", sim=sim), source="test", base_dir=tmp_path), "x").run_id
        for sim in models
    }
    assert (len(asked), len(others)) == (2, 1)
