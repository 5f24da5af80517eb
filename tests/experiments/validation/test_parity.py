"""A stored real run, replayed from its folder alone: equal decisions, and controls that differ."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.experiments.helpers.real_runs import run_real
from twinserve.experiments.validation.controls import as_sent, first_quoted_from_cache, run_controls
from twinserve.experiments.validation.decisions import decision_columns, encode, first_difference
from twinserve.experiments.validation.parity import check_log, check_parity, replay
from twinserve.experiments.validation.recorded import read_recorded_run


@pytest.fixture(scope="module")
def run(eventful_run):
    return read_recorded_run(eventful_run)


@pytest.fixture(scope="module")
def log(run):
    return check_log(run)


def test_the_run_has_everything_that_could_break_parity(eventful_run, run):
    result = json.loads((eventful_run / "result.json").read_text())
    assert result["num_preemptions"] > 3
    assert result["prefix_cache_hits"] > 100
    assert result["aborted"] > 2
    assert first_quoted_from_cache(run) is not None
    sent, arrival = (np.array(run.record.requests[name]) for name in ("sent_ns", "arrival_ns"))
    assert (sent - arrival > 3_000_000).any(), "the concurrency cap held nobody back"
    starts, ends = (np.array(run.record.steps[name]) for name in ("start_ns", "end_ns"))
    assert (starts[1:] > ends[:-1]).any(), "the engine was never idle"


def test_a_replay_from_the_folder_decides_the_same_byte_for_byte(run, log):
    parity = check_parity(run, log)
    assert parity.equal
    assert parity.sha256_real == parity.sha256_simulated
    assert parity.num_plans == len(run.record.steps["step_id"])


def test_a_replay_keeps_every_time_of_the_run(run):
    replayed = replay(run).record
    assert list(replayed.steps["start_ns"]) == list(run.record.steps["start_ns"])
    assert {name: list(column) for name, column in replayed.requests.items()} == run.record.requests


def test_every_control_differs(run, log):
    outcomes = {control.name: control.outcome for control in run_controls(run, log)}
    assert len(outcomes) == 3
    assert set(outcomes.values()) == {"differs"}


def test_the_workload_as_it_was_sent_replays_alike_until_an_id_is_changed(run, log):
    same = replay(run, workload=as_sent(run))
    assert first_difference(log, decision_columns(same.record.plans)) is None


@pytest.mark.parametrize(
    "name", ["request_ids", "num_computed", "num_new", "num_new_blocks", "new_block_ids", "preempted"]
)
def test_one_number_more_in_any_column_is_found_where_it_is(log, name):
    changed = {column: [*values] for column, values in log.items()}
    changed[name][5] = [*changed[name][5], 3]
    difference = first_difference(log, changed)
    assert (difference.step, difference.column) == (5, name)
    assert difference.real == list(log[name][5])


def test_a_log_that_ends_early_differs_where_it_ends(log):
    shorter = {column: values[:-2] for column, values in log.items()}
    difference = first_difference(log, shorter)
    assert difference.step == len(log["step_id"]) - 2
    assert difference.simulated is None


def test_numbers_that_move_between_columns_change_the_bytes():
    names = ("step_id", "request_ids", "num_computed", "num_new", "num_new_blocks", "new_block_ids", "preempted")
    one = dict(zip(names, [[0], [[1, 2]], [[]], [[]], [[]], [[]], [[]]], strict=True))
    other = {**one, "request_ids": [[1]], "num_computed": [[2]]}
    assert encode(one) != encode(other)


def test_another_policy_than_the_recorded_one_is_noticed(run, log):
    engine = run.config.engine.model_copy(update={"policy": "prefill_first"})
    config = run.config.model_copy(update={"engine": engine})
    parity = check_parity(replace(run, experiment=replace(run.experiment, config=config)), log)
    assert not parity.equal
    assert "step " in parity.describe()


def test_requests_refused_while_the_engine_is_idle_are_refused_when_they_were(tmp_path):
    pytest.importorskip("torch")
    changes = {
        "engine__max_model_len": 40,
        "workload__arrival": {"process": "poisson", "request_rate": 15.0},
        "workload__abort": None,
    }
    run = read_recorded_run(run_real(tmp_path, **changes))
    columns = (run.record.requests[name] for name in ("sent_ns", "refusal"))
    refused = {sent for sent, reason in zip(*columns, strict=True) if reason}
    assert refused - set(run.record.steps["start_ns"]), "nothing was refused while idle"
    assert check_parity(run, check_log(run)).equal
    assert list(replay(run).record.requests["sent_ns"]) == run.record.requests["sent_ns"]


def test_where_nothing_can_be_changed_a_control_says_so(tmp_path):
    pytest.importorskip("torch")
    changes = {"workload__sessions": None, "workload__arrival": {"process": "all_at_once"}}
    run = read_recorded_run(run_real(tmp_path, **changes))
    log = check_log(run)
    assert check_parity(run, log).equal
    longer, smaller, changed = run_controls(run, log)
    assert (longer.outcome, smaller.outcome, changed.outcome) == ("not applicable", "differs", "not applicable")
