"""Policies with parameters: in the YAML, with --set, in sweeps and as classes; all of it is part of the run id."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations

import pytest

from tests.experiments.helpers.small_experiments import small, write
from twinserve.experiments.config.load import Experiment, experiment_of
from twinserve.experiments.config.policies import qualified_name
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.identity import identify
from twinserve.experiments.run import run_experiment
from twinserve.sched_core.policies.order import FirstComeFirstServed, OrderBase

MODULE = """
from twinserve.sched_core.policies.order import OrderBase


class Aging(OrderBase):
    def __init__(self, half_life_s, weights=None):
        if half_life_s <= 0:
            raise ValueError("half_life_s must be positive")
        self.half_life_s = half_life_s

    def rank(self, request, now):
        return (request.spec.arrival_ns // int(self.half_life_s * 1e9), request.spec.num_prompt_tokens)
"""
USE = "aging_order:Aging"


class LongestFirst(OrderBase):
    def __init__(self, factor: int = 1) -> None:
        self.factor = factor

    def rank(self, request, now):
        return (-self.factor * request.spec.num_prompt_tokens,)


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "aging_order.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "aging_order", raising=False)


def experiment(tmp_path, **changes) -> Experiment:
    return experiment_of(small(**changes), source="test", base_dir=tmp_path)


def run_id(made: Experiment) -> str:
    return identify(made, "x").run_id


WRONG = [
    ({"use": USE, "half_life": 5}, "engine.order.half_life: unknown parameter; did you mean half_life_s?"),
    ({"use": USE}, "engine.order.half_life_s: is missing; give it a value"),
    ({"use": USE, "half_life_s": -5}, "engine.order.half_life_s: got -5; half_life_s must be positive"),
    ({"use": USE, "half_life_s": "long"}, "engine.order.half_life_s: got 'long'; '<=' not supported"),
    ({"use": "sjf", "half_life_s": 5}, "engine.order.half_life_s: unknown parameter; known here: nothing"),
    ({"use": "sjff"}, "engine.order: got 'sjff'; did you mean sjf?"),
    ({"half_life_s": 5}, "engine.order: names no policy; write {use: NAME, parameter: value}"),
    ({"use": USE, "half_life_s": {"a": 1}}, "engine.order: half_life_s is {'a': 1}; should be a number, a text"),
    (5, "engine.order: got 5; should be a name, or a mapping {use: NAME, parameter: value}"),
]


@pytest.mark.parametrize("command", [("run",), ("validate-config", "--allow-imports")])
@pytest.mark.parametrize(("order", "complaint"), WRONG, ids=[complaint for _, complaint in WRONG])
def test_a_wrong_policy_is_one_line_with_file_and_key(twinserve, tmp_path, command, order, complaint):
    path = write(tmp_path, small(engine__order=order))
    answer = twinserve(*command, path, *(["--out", tmp_path / "out"] if command == ("run",) else []))
    assert answer.code == 2
    assert answer.line.startswith(f"twinserve: error: {path}: {complaint}")


def test_a_parameter_set_on_the_command_line_is_named_in_its_errors(twinserve, tmp_path):
    path = write(tmp_path, small(engine__order={"use": USE, "half_life_s": 5}))
    answer = twinserve("validate-config", "--allow-imports", path, "--set", "engine.order.half_lif_s=7")
    expected = (
        "error: --set engine.order.half_lif_s=7: engine.order.half_lif_s: unknown parameter; did you mean half_life_s"
    )
    assert expected in answer.line


def test_a_parameter_of_a_policy_that_is_only_a_name_says_how_to_write_it(twinserve, tmp_path):
    path = write(tmp_path, small(engine__order="fcfs"))
    answer = twinserve("validate-config", "--allow-imports", path, "--set", "engine.order.half_life_s=7")
    assert answer.code == 2
    assert "or write order: {use: fcfs, half_life_s: ...} for a policy with parameters" in answer.line


def test_a_parameter_is_swept(twinserve, tmp_path):
    base = small(engine__order={"use": USE, "half_life_s": 1})
    sweep = {"base": base, "matrix": {"engine.order.half_life_s": [5, 10]}, "executor": {"kind": "serial"}}
    path = write(tmp_path, sweep, "sweep.yaml")
    assert (
        "a sweep of 2 runs over engine.order.half_life_s" in twinserve("validate-config", "--allow-imports", path).out
    )
    answer = twinserve("sweep", path, "--out", tmp_path / "out", "--no-progress")
    assert answer.code == 0, answer.err
    assert len(list((tmp_path / "out").glob("**/result.json"))) == 2


def test_a_wrong_parameter_of_a_sweep_is_found_without_running(twinserve, tmp_path):
    base = small(engine__order={"use": USE, "half_life_s": 1})
    path = write(tmp_path, {"base": base, "matrix": {"engine.order.half_life_s": [5, -1]}}, "sweep.yaml")
    answer = twinserve("validate-config", "--allow-imports", path)
    assert answer.code == 2
    assert "engine.order.half_life_s: got -1; half_life_s must be positive" in answer.line


def test_different_parameters_are_different_runs(tmp_path):
    orders = [
        "sjf",
        USE,
        {"use": USE, "half_life_s": 5},
        {"use": USE, "half_life_s": 10},
        {"use": USE, "half_life_s": 10, "weights": [1, 2]},
        {"use": USE, "half_life_s": 10, "path": "a"},
        {"use": USE, "half_life_s": 10, "path": "b"},
    ]
    ids = [run_id(experiment(tmp_path, engine__order=order)) for order in orders]
    assert all(one != other for one, other in combinations(ids, 2))


def test_a_mapping_without_parameters_is_the_name(tmp_path):
    named, mapped = (experiment(tmp_path, engine__order=order) for order in ("sjf", {"use": "sjf"}))
    assert mapped.config.engine.order == "sjf"
    assert run_id(named) == run_id(mapped)


def test_a_class_runs_under_its_own_name(tmp_path):
    made = experiment(tmp_path).with_policies({"order": {"use": LongestFirst, "factor": 2}})
    assert made.config.engine.order == {"use": f"{__name__}:LongestFirst", "factor": 2}
    finished = run_experiment(made, tmp_path / "out", code="x")
    assert finished.result["completed"] == 6
    assert run_experiment(made, tmp_path / "out", code="x").was_there


def test_the_id_of_a_run_with_a_class_covers_name_parameters_and_source(tmp_path):
    plain = experiment(tmp_path)

    class Local(FirstComeFirstServed):
        pass

    first = Local

    class Local(FirstComeFirstServed):  # type: ignore[no-redef]
        def rank(self, request, now):
            return (1,)

    assert qualified_name(first) == qualified_name(Local)
    choices = ["fcfs", first, Local, LongestFirst, {"use": LongestFirst, "factor": 2}]
    ids = [run_id(plain.with_policies({"order": choice})) for choice in choices]
    assert ids[0] == run_id(plain)
    assert all(one != other for one, other in combinations(ids, 2))


def test_a_stored_run_is_not_reused_when_the_source_of_a_policy_is_unknown(tmp_path):
    factor = 2
    made = experiment(tmp_path).with_policies({"order": lambda: LongestFirst(factor)})
    run_experiment(made, tmp_path / "out", code="x")
    assert not run_experiment(made, tmp_path / "out", code="x").was_there


def test_a_name_takes_the_place_of_a_class(tmp_path):
    made = experiment(tmp_path).with_policies({"order": LongestFirst})
    assert made.with_policies({"order": "fcfs"}) == replace(experiment(tmp_path), makers={})


@pytest.mark.parametrize(
    ("policies", "complaint"),
    [
        ({"ordr": "sjf"}, "engine.ordr: there is no such seam; did you mean order?"),
        ({"order": 3}, "engine.order: got 3"),
    ],
)
def test_wrong_policies_from_python_are_explained(tmp_path, policies, complaint):
    with pytest.raises(ConfigError) as caught:
        experiment(tmp_path).with_policies(policies)
    assert str(caught.value).startswith(complaint)


def test_the_list_shows_parameters_with_their_defaults(twinserve):
    lines = twinserve("list", "policies").out.splitlines()
    assert "engine.policy.max_prefill_tokens: decode_first only, null unless given" in lines
    assert "engine.order: fcfs, priority, sjf" in lines
