"""``twinserve calibrate``: folders in, a calibration file, a picture and tables out."""

from __future__ import annotations

import numpy as np
import pytest

from tests.experiments.helpers.measured_folders import GAP, KERNELS, MIXED, write_profile, write_run
from tests.sim_backend.measured_steps import SIZES
from twinserve.experiments.calibrate.outcome import HELD_OUT, calibrate, spread_of
from twinserve.experiments.calibrate.readers import read_source
from twinserve.experiments.cli.main import main
from twinserve.experiments.config.calibration import read_calibration, write_calibration
from twinserve.sched_core.dispatch import GraphMode


def test_run_gives_its_terms_host_gap_and_engine_back(tmp_path):
    outcome = calibrate([write_run(tmp_path / "run")])
    found = outcome.calibration
    assert found.modes[GraphMode.MIXED].per_context_token_us == pytest.approx(MIXED.per_context_token_us, rel=1e-3)
    assert found.host_gap.base_ms == pytest.approx(GAP.base_ms, rel=1e-2)
    assert found.host_gap.per_started_us == pytest.approx(GAP.per_started_us, rel=1e-2)
    assert found.held_out.mape_percent < 0.01
    assert (found.gpu, found.block_size, found.num_blocks) == ("Some GPU", 16, 1000)
    assert found.capture_sizes == SIZES


def test_file_of_a_fit_reads_back_as_the_same_value(tmp_path):
    calibration = calibrate([write_run(tmp_path / "run")]).calibration
    write_calibration(calibration, tmp_path / "c.yaml")
    assert read_calibration(tmp_path / "c.yaml") == calibration


def test_profile_takes_the_host_gap_from_steps_of_the_whole_engine(tmp_path):
    slow = write_profile(tmp_path / "profile")
    steps = read_source(slow).steps
    assert steps.in_loop.sum() == 200
    assert (~steps.in_loop).sum() == 600
    found = calibrate([slow]).calibration
    assert found.host_gap.base_ms == pytest.approx(GAP.base_ms, rel=1e-2)
    assert found.held_out.mape_percent < 0.01


def test_profile_without_steps_of_the_whole_engine_is_used_and_said(tmp_path):
    outcome = calibrate([write_profile(tmp_path / "profile", sources=("runner",))])
    assert any("holds no scheduling" in note for note in outcome.notes)
    assert outcome.calibration.host_gap.base_ms == pytest.approx(GAP.base_ms, rel=1e-2)


def test_repeats_of_a_shape_count_once_as_their_median_and_give_the_spread(tmp_path):
    steps = read_source(write_profile(tmp_path / "profile", sources=("runner",), noise=0.03)).steps
    assert len(steps) == 600
    assert spread_of(steps) == pytest.approx(2.0, rel=0.01)  # -3 %, 0, +3 % around the median
    assert calibrate([tmp_path / "profile"]).calibration.held_out.mape_percent < 0.01


def test_incomplete_profile_is_used_and_said(tmp_path):
    outcome = calibrate([write_profile(tmp_path / "profile", manifest={"complete": False})])
    assert any("resumes" in note for note in outcome.notes)


def test_run_that_is_only_judged_on_gives_the_error_in_the_file(tmp_path):
    fitted = write_run(tmp_path / "fitted")
    slower = write_run(tmp_path / "slower", seed=7)
    outcome = calibrate([fitted], [slower])
    assert list(outcome.held_out) == [HELD_OUT, f"{tmp_path.name}/slower"]
    assert len(outcome.judged.steps) == 600
    assert outcome.calibration.held_out.num_steps == 600
    assert "run slower" in outcome.calibration.origin
    assert outcome.calibration.modes == calibrate([fitted]).calibration.modes


def test_tables_fit_80_columns_and_no_figure_is_cut(tmp_path, twinserve):
    profile, judge = write_profile(tmp_path / "profile", noise=0.03), write_run(tmp_path / "a-rather-long-name", seed=7)
    answer = twinserve("calibrate", profile, "--held-out", judge, "-o", tmp_path / "c.yaml")
    assert answer.code == 0
    tables = answer.out.partition("Picture in")[0].splitlines()
    assert max(len(line.rstrip()) for line in tables if not line.startswith("Note")) <= 80
    assert "\u2026" not in answer.out


def test_ctrl_c_while_fitting_leaves_the_older_file(tmp_path, twinserve, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    (tmp_path / "c.yaml").write_text("old")
    monkeypatch.setattr("twinserve.experiments.calibrate.outcome.fit_calibration", interrupted)
    answer = twinserve("calibrate", write_run(tmp_path / "run"), "-o", tmp_path / "c.yaml")
    assert answer.code == 130
    assert answer.line == "twinserve: interrupted; what had finished stays"
    assert (tmp_path / "c.yaml").read_text() == "old"


def test_folders_together_have_the_smallest_pool(tmp_path):
    folders = [write_run(tmp_path / "a"), write_run(tmp_path / "b", manifest={"num_blocks": 700}, seed=3)]
    outcome = calibrate(folders)
    assert outcome.calibration.num_blocks == 700
    assert len(outcome.steps) == 1200


def test_run_without_device_times_is_fitted_as_whole_intervals(tmp_path):
    outcome = calibrate([write_run(tmp_path / "run", changes={"device_ns": [None] * 600})])
    assert outcome.calibration.host_gap.base_ms == 0
    assert "whole intervals" in outcome.calibration.origin
    assert outcome.calibration.held_out.mape_percent < 2


def test_kernel_profile_gives_the_sum_of_its_kernels():
    calibration = calibrate([KERNELS], num_blocks=2588).calibration
    dense = 32 * (2 * 2 + 50 + 2 + 40 + 250 + 3 + 130) + 3 + 2  # us at no tokens; tokens / 256 times as much more
    decode = calibration.modes[GraphMode.DECODE]
    assert decode.per_context_token_us == pytest.approx(32 * 0.006, rel=1e-3)
    one_token = dense * (1 + 1 / 256) + 32 * 10 + 1000 + 20
    assert decode.dense_knots_ms[0][1] == pytest.approx(one_token / 1e3, rel=2e-3)
    eager = calibration.modes[GraphMode.EAGER]
    assert eager.per_context_token_us == pytest.approx(32 * 0.006, rel=0.05)
    assert calibration.held_out.mape_percent < 0.3
    assert calibration.attention_backend == "vllm 0.19.0"


def test_command_writes_the_file_and_a_picture_and_prints_tables(tmp_path, capsys):
    run, out = write_run(tmp_path / "run"), tmp_path / "new" / "mine.yaml"
    assert main(["calibrate", str(run), "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    for words in ("held out", "MAPE", "host gap", "Worst held-out steps", "kind: calibration"):
        assert words in shown
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert read_calibration(out).gpu == "Some GPU"
    assert main(["calibrate", str(run), "-o", str(out)]) == 0
    assert "(replaced)" in capsys.readouterr().out


def test_same_folders_give_the_same_bytes(tmp_path):
    run = write_run(tmp_path / "run")
    files = [tmp_path / name for name in ("a.yaml", "b.yaml")]
    for file in files:
        main(["calibrate", str(run), "-o", str(file)])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_simulation_uses_the_fitted_file(tmp_path, capsys):
    main(["calibrate", str(write_run(tmp_path / "run")), "-o", str(tmp_path / "c.yaml")])
    model = "--set", f"sim.cost_model={{kind: calibration, file: {tmp_path / 'c.yaml'}}}"
    # SIZES hold at most 256 tokens: larger steps would be eager, for which this engine was not measured
    small = ("--set", "engine.max_num_batched_tokens=256", "--set", "engine.enforce_eager=false")
    assert main(["run", "smoke", *model, *small, "--out", str(tmp_path / "out")]) == 0
    assert "Mean TTFT" in capsys.readouterr().out


def test_steps_of_unfitted_modes_are_said_to_be_left_out(tmp_path):
    run = write_run(tmp_path / "run")
    modes = np.array(read_source(run).steps.modes)
    modes[:3] = "eager"
    outcome = calibrate([write_run(tmp_path / "odd", changes={"graph_mode": modes.tolist()})])
    assert any("eager" in note for note in outcome.notes)
    assert len(outcome.fitted.steps) + len(outcome.held_out[HELD_OUT].steps) == 597


def test_run_too_short_to_hold_anything_out_is_fitted_and_says_so(tmp_path, capsys):
    run = write_run(tmp_path / "run", count=12)
    assert main(["calibrate", str(run), "-o", str(tmp_path / "c.yaml")]) == 0
    assert "nothing was held out" in capsys.readouterr().out
    assert read_calibration(tmp_path / "c.yaml").held_out is None


def test_profile_and_run_are_fitted_together(tmp_path):
    outcome = calibrate([write_profile(tmp_path / "profile"), write_run(tmp_path / "run", seed=9)])
    assert len(outcome.steps) == 600 + 200 + 600
    assert outcome.calibration.held_out.mape_percent < 0.01
    assert "x 1.000" in "".join(outcome.notes)


def test_shapes_that_enter_with_other_numbers_of_requests_are_shapes_of_their_own(tmp_path):
    started = [0] * 1200 + [2] * 600
    profile = write_profile(tmp_path / "profile", sources=("runner",), changes={"num_started": started})
    steps = read_source(profile).steps
    assert len(steps) == 1200
    by_shape = {}
    for *shape, held in zip(steps.features["decode_context"], steps.features["num_rows"], steps.held_out, strict=True):
        assert by_shape.setdefault(tuple(shape), held) == held
