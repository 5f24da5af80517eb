"""The calibrations of an H200 that ship: what their errors are, and that they simulate the engine that they are of."""

from __future__ import annotations

import warnings

import pytest

from twinserve.experiments.config.calibration import read_calibration
from twinserve.experiments.config.load import load_experiment
from twinserve.experiments.run import run_experiment
from twinserve.experiments.settings.overrides import Override
from twinserve.experiments.settings.paths import packaged_configs
from twinserve.experiments.validation.cost_source import CostSource
from twinserve.sched_core.dispatch import GraphMode
from twinserve.sim_backend.calibration.calibrated import CalibrationRangeWarning

GRAPHS = ("h200-qwen3-8b-graphs", "h200-qwen3-0.6b-graphs")
EAGER = "h200-qwen3-8b-eager"
SETTINGS = {
    "h200-qwen3-8b-graphs": {},
    "h200-qwen3-0.6b-graphs": {"model.name": "Qwen/Qwen3-0.6B"},
    EAGER: {"engine.enforce_eager": True},
}
"""In what ``h200/note_qwen3_8b`` must differ to be the engine that was measured."""


def shipped(name):
    return read_calibration(packaged_configs() / "calibrations" / f"{name}.yaml")


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_are_within_their_bounds_on_runs_that_were_not_fitted(name):
    calibration = shipped(name)
    assert set(calibration.modes) == {GraphMode.DECODE, GraphMode.MIXED}
    assert calibration.held_out.mape_percent <= 3
    assert round(calibration.held_out.p95_percent, 1) <= 8
    assert abs(calibration.held_out.bias_percent) <= 1  # of which the host's state at that hour has most
    assert "none of which was fitted" in calibration.origin


def test_eager_steps_are_off_by_hardly_more_than_their_repeats():
    calibration = shipped(EAGER)
    assert set(calibration.modes) == {GraphMode.EAGER}
    assert calibration.capture_sizes.decode == calibration.capture_sizes.mixed == ()
    assert calibration.modes[GraphMode.EAGER].floor_ms > 0
    assert calibration.held_out.mape_percent <= 1.5 * 5.0  # the profile's repeats spread by 5.0 %
    assert "none of which was fitted" in calibration.origin


@pytest.mark.parametrize(("name", "settings"), SETTINGS.items())
def test_the_notes_requests_stay_within_what_was_measured(tmp_path, name, settings):
    wanted = {"sim.cost_model.file": name, "workload.num_prompts": 40, **settings}
    overrides = [Override(key=key, value=value, source="test") for key, value in wanted.items()]
    experiment = load_experiment("h200/note_qwen3_8b", overrides)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationRangeWarning)
        result = run_experiment(experiment, tmp_path, code="x").result
    assert result["completed"] == 40


def test_a_calibration_with_a_point_in_its_name_keeps_it():
    assert CostSource(calibration="h200-qwen3-0.6b-graphs").label == "h200-qwen3-0.6b-graphs"
    assert CostSource(calibration="some/h200-qwen3-0.6b.yaml").label == "h200-qwen3-0.6b"
