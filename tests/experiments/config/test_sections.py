"""What a valid configuration means."""

from __future__ import annotations

from dataclasses import MISSING, fields

import pytest
from pydantic import ValidationError

from tests.experiments.helpers.small_experiments import small, write
from twinserve.experiments.config.engine import EngineSection
from twinserve.experiments.config.experiment import ExperimentConfig
from twinserve.experiments.config.load import experiment_of, load_experiment
from twinserve.experiments.settings.overrides import Override, apply_overrides, parse_override
from twinserve.experiments.settings.paths import packaged_experiments
from twinserve.experiments.settings.yaml_loader import read_yaml
from twinserve.experiments.sweep.points import load_sweep
from twinserve.sched_core.config import SchedulerConfig


def load(data, overrides=(), folder=None):
    return experiment_of(data, overrides, source="text", base_dir=folder).config


def test_the_engine_section_has_the_schedulers_fields_and_defaults():
    section = EngineSection()
    expected = {field.name: field.default for field in fields(SchedulerConfig) if field.default is not MISSING}
    assert section.scheduler_fields() == expected


def test_quoted_numbers_count_where_a_float_is_meant():
    data = small(
        workload__arrival__request_rate="1e1", sim__cost_model__base_ms="2.5", metrics={"percentiles": ["5e1"]}
    )
    config = load(data)
    assert config.workload.arrival.request_rate == 10.0
    assert config.sim.cost_model.base_ms == 2.5
    assert config.metrics.percentiles == (50.0,)


def test_a_quoted_infinity_is_a_rate():
    assert load(small(workload__arrival__request_rate="inf")).workload.arrival.request_rate == float("inf")


def test_a_quoted_number_is_no_integer():
    with pytest.raises(Exception, match=r"engine\.max_num_seqs: got '8'; should be a valid integer"):
        load(small(engine__max_num_seqs="8"))


def test_a_configuration_cannot_be_changed():
    config = load(small())
    with pytest.raises(ValidationError, match="frozen"):
        config.engine.max_num_seqs = 3


def test_a_real_run_needs_no_sim_section():
    data = small(backend="real")
    del data["sim"]
    assert load(data).sim is None


def test_policies_may_be_import_paths():
    path = "twinserve.sched_core.policies.composition:Static"
    assert load(small(engine__policy=path)).engine.policy == path


def test_the_configuration_survives_its_own_dump():
    config = load(small(workload__arrival__request_rate=float("inf")))
    assert load(config.model_dump()) == config


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a.b=3", "a.b", 3),
        ("a=1e3", "a", 1000.0),
        ("a=x=y", "a", "x=y"),
        ("a=", "a", None),
        ("a=[1, 2]", "a", [1, 2]),
        ("a={kind: fixed, value: 8}", "a", {"kind": "fixed", "value": 8}),
    ],
)
def test_overrides_are_yaml_values(text, key, value):
    override = parse_override(text)
    assert (override.key, override.value) == (key, value)


def test_the_last_override_wins_and_the_data_stays_as_it_was():
    data = small()
    overrides = [parse_override("engine.max_num_seqs=8"), parse_override("engine.max_num_seqs=9")]
    assert load(data, overrides).engine.max_num_seqs == 9
    assert data == small()


def test_an_override_makes_the_sections_it_needs():
    override = Override(key="a.b.c", value=1, source="test")
    assert apply_overrides({"x": 0}, [override]) == {"x": 0, "a": {"b": {"c": 1}}}


def test_a_relative_path_on_the_command_line_starts_at_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse_override("workload.path=a.csv").value == str(tmp_path / "a.csv")


@pytest.mark.parametrize("name", packaged_experiments())
def test_every_packaged_configuration_is_valid(name):
    if name.startswith("sweeps/"):
        assert load_sweep(name).points
    else:
        assert isinstance(load_experiment(name).config, ExperimentConfig)


@pytest.mark.parametrize("name", ["smoke", "smoke.yaml", "configs/smoke.yaml", "configs/smoke"])
def test_packaged_configurations_are_found_from_anywhere(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert load_experiment(name).config.name == "smoke"


def test_an_existing_file_comes_before_a_packaged_one(tmp_path, monkeypatch):
    write(tmp_path, small(), "smoke.yaml")
    monkeypatch.chdir(tmp_path)
    assert load_experiment("smoke.yaml").config.name == "small"


def test_the_stored_configuration_is_plain_yaml(tmp_path):
    path = write(tmp_path, small())
    assert read_yaml(path) == small()
