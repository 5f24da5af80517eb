"""The published benchmark of the note is reproduced by the shipped configurations."""

from __future__ import annotations

from functools import cache
from math import log

import pytest

from twinserve.experiments.cli.main import main
from twinserve.experiments.config.calibration import read_calibration
from twinserve.experiments.config.load import load_experiment
from twinserve.experiments.reproduce.comparison import Comparison
from twinserve.experiments.reproduce.lattice import Minimum
from twinserve.experiments.reproduce.note import is_reproduced, reproduce_note
from twinserve.experiments.reproduce.note_fit import ENGINES, STARTS, Fit, calibration_of, disagreement, fit
from twinserve.experiments.reproduce.published import FIGURES, NOTE
from twinserve.experiments.settings.paths import packaged_configs
from twinserve.experiments.sweep.executors import in_processes

RUNS = ("nano_rate2", "nano_inf", "v1_rate2", "v1_inf")


@cache
def comparisons():
    return {comparison.run: comparison for comparison in reproduce_note()}


def shipped(engine):
    return read_calibration(packaged_configs() / "calibrations" / f"note-rtx-4090-{engine}.yaml")


def test_all_published_runs_and_figures_are_compared():
    assert tuple(comparisons()) == tuple(NOTE)
    assert set(RUNS) == set(NOTE)
    assert all(tuple(comparison.published) == FIGURES for comparison in comparisons().values())


@pytest.mark.parametrize("run", RUNS)
def test_mean_error_is_within_two_and_a_half_percent(run):
    assert comparisons()[run].mean_abs_log_error <= 0.025


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("figure", FIGURES)
def test_no_figure_is_off_by_more_than_ten_percent(run, figure):
    comparison = comparisons()[run]
    assert comparison.simulated[figure] == pytest.approx(comparison.published[figure], rel=0.10)


def test_both_bounds_decide_whether_a_run_is_reproduced():
    def comparison(*simulated):
        return Comparison(run="x", published={"a": 1.0, "b": 1.0}, simulated=dict(zip("ab", simulated, strict=True)))

    assert is_reproduced(comparison(1.03, 1.0))
    assert not is_reproduced(comparison(1.03, 1.03))
    long = dict.fromkeys("abcdefgh", 1.0)
    assert not is_reproduced(Comparison(run="x", published=long, simulated=long | {"a": 0.89}))


def test_twice_and_half_are_the_same_log_error():
    comparison = Comparison(run="x", published={"a": 1.0, "b": 1.0}, simulated={"a": 2.0, "b": 0.5})
    assert comparison.log_error("a") == -comparison.log_error("b") == log(2)


@pytest.mark.parametrize(("engine", "blocks"), [("nano", 155), ("v1", 140)])
def test_stated_block_counts_are_those_of_configuration_and_calibration(engine, blocks):
    assert shipped(engine).num_blocks == blocks
    for rate in ("rate2", "inf"):
        assert load_experiment(f"note_4090/{engine}_{rate}").config.engine.num_gpu_blocks_override == blocks


def test_disagreement_is_the_widest_ratio_of_any_parameter():
    minima = [Minimum(values=v, loss=0.0, mean_loss=0.0, num_evaluations=1) for v in ((40.0, 0.1), (40.4, 0.103))]
    fits = [Fit(engine="v1", start=STARTS[0], minimum=minimum) for minimum in minima]
    assert disagreement(fits) == pytest.approx(0.03)
    assert disagreement(fits[:1]) == 0


def test_command_prints_the_table_and_saves_the_picture(tmp_path, capsys):
    assert main(["reproduce", "note", "--plot", str(tmp_path / "note.png")]) == 0
    printed = capsys.readouterr().out
    assert "TTFT p99 ms" in printed
    assert all(run in printed for run in RUNS)
    assert (tmp_path / "note.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_three_starts_reach_the_shipped_calibrations():
    fits = list(in_processes(fit, [(engine, start) for start in STARTS for engine in ENGINES], workers=None))
    for engine in ENGINES:
        mine = [each for each in fits if each.engine == engine]
        assert disagreement(mine) <= 0.02
        assert calibration_of(mine) == shipped(engine)
