"""Which experiments a sweep file stands for."""

from __future__ import annotations

import pytest

from tests.experiments.helpers.small_experiments import small, write
from twinserve.experiments.config.load import validate
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.settings.overrides import parse_override
from twinserve.experiments.sweep.points import load_sweep
from twinserve.experiments.sweep.sweep_config import SweepConfig


def points(**sweep):
    return list(validate(SweepConfig, {"base": "smoke", **sweep}, source="text").points())


@pytest.fixture
def load(tmp_path):
    def load(overrides=(), **sweep):
        return load_sweep(str(write(tmp_path, {"base": small(), **sweep}, "sweep.yaml")), overrides)

    return load


def test_a_matrix_is_every_combination_in_the_order_of_the_file():
    assert points(matrix={"a": [1, 2], "b": [3, 4]}) == [
        {"a": 1, "b": 3},
        {"a": 1, "b": 4},
        {"a": 2, "b": 3},
        {"a": 2, "b": 4},
    ]


def test_zipped_lists_are_walked_together_within_the_matrix():
    found = points(matrix={"a": [1, 2]}, zip={"b": [3, 4], "c": [5, 6]})
    assert found == [{"a": a, "b": b, "c": c} for a in (1, 2) for b, c in ((3, 5), (4, 6))]


def test_excluded_points_match_every_key_of_an_entry():
    found = points(matrix={"a": [1, 2], "b": [3, 4, 5]}, exclude=[{"a": 1, "b": [3, 4]}, {"b": 5, "a": 2}])
    assert found == [{"a": 1, "b": 5}, {"a": 2, "b": 3}, {"a": 2, "b": 4}]


def test_included_points_come_last_and_are_not_excluded():
    found = points(matrix={"a": [1, 2]}, exclude=[{"a": 2}], include=[{"a": 2, "z": 9}])
    assert found == [{"a": 1}, {"a": 2, "z": 9}]


def test_included_points_need_no_matrix():
    assert points(include=[{"a": 1}]) == [{"a": 1}]


def test_each_point_runs_once_per_seed():
    assert points(matrix={"a": [1, 2]}, seeds=[7, 8]) == [{"a": a, "seed": s} for a in (1, 2) for s in (7, 8)]


def test_a_sweep_over_nothing_is_its_base():
    assert points() == [{}]


@pytest.mark.parametrize(
    ("sweep", "complaint"),
    [
        ({"zip": {"a": [1, 2], "b": [1]}}, "zip lists differ in length"),
        ({"matrix": {"a": [1]}, "zip": {"a": [1]}}, "a is in both matrix and zip"),
        ({"matrix": {"seed": [1]}, "seeds": [1]}, "seeds and a swept `seed` are both given"),
        ({"matrix": {"a": [1]}, "exclude": [{"b": 1}]}, "exclude names b, which neither matrix nor zip sweeps"),
        ({"matrix": {"a": []}}, "matrix.a: got []; list should have at least 1 item"),
        ({"matrix": {"a": 1}}, "matrix.a: got 1; should be a valid list"),
        ({"matrx": {"a": [1]}}, "matrx: unknown key; did you mean matrix?"),
        ({"executor": {"kind": "threads"}}, "executor.kind: got 'threads'; should be"),
        ({"seeds": [-1]}, "seeds.0: got -1"),
    ],
)
def test_a_wrong_sweep_is_one_line(load, sweep, complaint):
    with pytest.raises(ConfigError) as error:
        load(**sweep)
    assert complaint in str(error.value)
    assert "sweep.yaml" in str(error.value)


def test_a_wrong_value_of_a_point_names_the_point(load):
    with pytest.raises(ConfigError, match=r"sweep\.yaml \(point engine\.policy=mixd\): engine\.policy: got 'mixd'"):
        load(matrix={"engine.policy": ["mixed", "mixd"]})


def test_a_sweep_that_excludes_everything_is_an_error(load):
    with pytest.raises(ConfigError, match="leaves no point to run"):
        load(matrix={"seed": [1]}, exclude=[{"seed": 1}])


def test_points_win_over_the_command_line_and_that_over_the_base(load):
    overrides = [parse_override("engine.max_num_seqs=2"), parse_override("seed=9")]
    (point,) = load(overrides, matrix={"engine.max_num_seqs": [3]}).points
    assert (point.experiment.config.engine.max_num_seqs, point.experiment.config.seed) == (3, 9)


def test_a_swept_key_that_a_point_leaves_alone_has_the_bases_value(load):
    sweep = load(matrix={"engine.policy": ["static"]}, include=[{"engine.max_num_seqs": 2}])
    assert [dict(point.settings) for point in sweep.points] == [
        {"engine.policy": "static", "engine.max_num_seqs": 4},
        {"engine.policy": "mixed", "engine.max_num_seqs": 2},
    ]


def test_a_base_file_is_found_beside_the_sweep(tmp_path):
    write(tmp_path, small(), "base.yaml")
    path = write(tmp_path, {"base": "base.yaml", "matrix": {"seed": [1, 2]}}, "sweep.yaml")
    assert [point.experiment.config.seed for point in load_sweep(str(path)).points] == [1, 2]


def test_a_missing_base_is_named(tmp_path):
    path = write(tmp_path, {"base": "nothing.yaml"}, "sweep.yaml")
    with pytest.raises(ConfigError, match=r"sweep\.yaml: base: nothing\.yaml does not exist"):
        load_sweep(str(path))


@pytest.mark.parametrize(
    ("sweep", "count"),
    [
        ({"matrix": {key: list(range(10)) for key in "abcdefgh"}}, "100,000,000 points"),
        ({"matrix": {f"k{key}": list(range(10)) for key in range(300)}}, "over 10**15 points"),
        ({"matrix": {"a": list(range(400))}, "zip": {"b": list(range(300))}}, "120,000 points"),
        ({"include": [{"a": 1}, {"a": 2}], "seeds": list(range(60_000))}, "120,000 points"),
        ({"seeds": list(range(100_001))}, "100,001 points"),
    ],
)
def test_points_are_counted_before_they_are_made(load, monkeypatch, sweep, count):
    monkeypatch.setattr(SweepConfig, "points", pytest.fail)
    with pytest.raises(ConfigError, match=r"sweep\.yaml: ") as error:
        load(**sweep)
    assert f"gives {count}, before exclude; at most 100,000: make several sweeps of it" in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    "sweep",
    [
        {},
        {"include": [{"a": 1}]},
        {"matrix": {"a": [1, 2]}, "zip": {"b": [3, 4], "c": [5, 6]}, "include": [{"a": 5}], "seeds": [1, 2, 3]},
        {"zip": {"b": [3, 4, 5]}},
    ],
)
def test_the_count_is_that_of_the_points(sweep):
    config = validate(SweepConfig, {"base": "smoke", **sweep}, source="text")
    assert config.num_points() == len(list(config.points()))


def test_a_point_is_made_when_it_is_asked_for():
    config = validate(SweepConfig, {"base": "smoke", "matrix": {k: list(range(10)) for k in "abcde"}}, source="text")
    assert next(config.points()) == dict.fromkeys("abcde", 0)
