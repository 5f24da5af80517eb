"""Sweeps from Python: the same summary as the command line's, and the runs behind it."""

import pytest

import twinserve
from tests.experiments.helpers.small_experiments import small

BUDGET = "engine.max_num_batched_tokens"


@pytest.fixture
def sweep(tmp_path):
    config = {"name": "budgets", "base": small(), "matrix": {BUDGET: [64, 128]}, "seeds": [0, 1]}
    return twinserve.sweep(config, out=tmp_path / "sweep", executor="serial")


def test_the_table_has_a_row_per_point_and_the_runs_follow_it(sweep):
    assert sweep.failed == {}
    assert sweep.table[[BUDGET, "seed"]].to_numpy().tolist() == [[64, 0], [64, 1], [128, 0], [128, 1]]
    assert [run.config["engine"]["max_num_batched_tokens"] for run in sweep.runs] == [64, 64, 128, 128]
    assert [run.result["p99_ttft_ms"] for run in sweep.runs] == pytest.approx(sweep.table.p99_ttft_ms.tolist())


def test_a_sweep_is_read_back(sweep):
    again = twinserve.read_sweep(sweep.folder)
    assert again.table.equals(sweep.table)
    assert [run.run_id for run in again.runs] == sweep.table.run_id.tolist()


def test_a_sweep_is_drawn_against_the_key_that_varies(sweep, tmp_path):
    figure = sweep.plot(tmp_path / "sweep.png", percentile="p90", across=BUDGET)
    assert figure.axes[0].get_ylabel() == "p90 TTFT (ms)"
    assert (tmp_path / "sweep.png").is_file()


def test_points_that_fail_are_named_and_the_others_go_on(tmp_path):
    config = {"base": small(), "matrix": {"engine.num_gpu_blocks_override": [64, None]}, "executor": {"kind": "serial"}}
    sweep = twinserve.sweep(config, out=tmp_path)
    assert len(sweep.runs) == 1
    assert list(sweep.failed) == ["engine.num_gpu_blocks_override=None"]


def test_set_changes_the_base_of_a_sweep(tmp_path):
    config = {"base": small(), "matrix": {BUDGET: [64]}, "executor": {"kind": "serial"}}
    sweep = twinserve.sweep(config, set={"engine.max_num_seqs": 2}, out=tmp_path)
    assert sweep.runs[0].config["engine"]["max_num_seqs"] == 2


def test_errors_are_one_line_that_names_the_place(tmp_path):
    with pytest.raises(twinserve.ConfigError, match=r"^the given mapping: base: is missing; a sweep varies"):
        twinserve.sweep(small())
    with pytest.raises(twinserve.ConfigError, match=r"holds no summary\.csv; give the folder of a sweep"):
        twinserve.read_sweep(tmp_path)
    seeds = {"base": small(), "seeds": [0, 1], "executor": {"kind": "serial"}}
    with pytest.raises(twinserve.ConfigError, match="nothing to plot against"):
        twinserve.sweep(seeds, out=tmp_path).plot()
