"""vLLM's 300 measured requests on an RTX 4090 are reproduced from kernel times."""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache

import numpy as np
import pytest

from tests.experiments.helpers.measured_folders import copy_kernels
from tests.paths import TRACES
from twinserve.experiments.calibrate.kernel_folder import vllm_capture_sizes
from twinserve.experiments.cli.main import main
from twinserve.experiments.files.progress import LateProgress
from twinserve.experiments.reproduce.comparison import Comparison
from twinserve.experiments.reproduce.vllm_4090 import (
    BOUNDED,
    MeasuredWorkload,
    compare_times,
    fit_vllm,
    is_within_bounds,
    shipped_calibration,
)
from twinserve.experiments.reproduce.vllm_data import KERNELS, MEASURED, RequestTimes, read_measured
from twinserve.sim_backend.calibration.values import StepTerms

DATA = TRACES / "llmservingsim"
TERMS = [item.name for item in fields(StepTerms) if item.name != "dense_knots_ms"]
needs_data = pytest.mark.skipif(not (DATA / KERNELS).is_dir(), reason="LLMServingSim's measurements are not here")


@cache
def shipped_times():
    return MeasuredWorkload.load(DATA).times(shipped_calibration())


@needs_data
@pytest.mark.parametrize("figure", BOUNDED)
def test_shipped_calibration_is_within_three_percent_on_the_requests_that_were_not_fitted(figure):
    comparison = compare_times(read_measured(DATA), shipped_times())
    assert comparison.simulated[figure] == pytest.approx(comparison.published[figure], rel=0.03)


@needs_data
def test_measured_figures_of_all_requests_are_those_published():
    latencies = read_measured(DATA).latencies
    assert latencies["ttft"].mean() == pytest.approx(65456.6, abs=0.1)
    assert np.percentile(latencies["ttft"], 99) == pytest.approx(137356.3, abs=0.1)
    assert np.percentile(latencies["tpot"], 99) == pytest.approx(56.0, abs=0.1)


@needs_data
def test_default_graph_sizes_are_those_of_the_measured_engine():
    meta = json.loads((DATA / MEASURED / "meta.json").read_text())
    captured = meta["resolved_config"]["compilation_config"]["cudagraph_capture_sizes"]
    sizes = vllm_capture_sizes(meta["engine_kwargs"]["max_num_seqs"])
    assert sizes.mixed == tuple(captured)
    assert shipped_calibration().capture_sizes == sizes


@needs_data
def test_fit_from_scratch_gives_the_shipped_calibration():
    with LateProgress("fit", "simulations", enabled=False) as bar:
        found = fit_vllm(DATA, MeasuredWorkload.load(DATA), read_measured(DATA), bar)
    shipped = shipped_calibration()
    assert found.host_gap == shipped.host_gap
    assert found.covered == shipped.covered
    for mode, terms in shipped.modes.items():
        *others, knots = (getattr(found.modes[mode], name) for name in (*TERMS, "dense_knots_ms"))
        assert others == pytest.approx([getattr(terms, name) for name in TERMS], rel=1e-3)
        assert np.ravel(knots) == pytest.approx(np.ravel(terms.dense_knots_ms), rel=1e-3)


def test_all_three_bounds_decide():
    def comparison(**changes):
        return Comparison(
            run="x", published=dict.fromkeys(BOUNDED, 1.0), simulated=dict.fromkeys(BOUNDED, 1.0) | changes
        )

    assert is_within_bounds(comparison(p99_ttft_ms=0.971))
    assert all(not is_within_bounds(comparison(**{name: 1.031})) for name in BOUNDED)


def test_latencies_count_from_the_queue_and_spread_over_the_tokens_after_the_first():
    times = RequestTimes(np.array([10.0]), np.array([10.5]), np.array([12.5]), np.array([5.0]))
    assert {name: values.tolist() for name, values in times.latencies.items()} == {
        "ttft": [500.0],
        "tpot": [500.0],
        "e2el": [2500.0],
    }


def small_data(folder):
    """A few requests and the made-up kernels, in LLMServingSim's layout."""
    measured = folder / MEASURED
    measured.mkdir()
    copy_kernels(folder / KERNELS)
    rows = [
        {"queued_ts": i, "first_token_ts": i + 1, "last_token_ts": i + 3, "input_toks": 300, "output_toks": 20}
        for i in range(105)
    ]
    (measured / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (measured / "meta.json").write_text(json.dumps({"kv_cache": {"num_gpu_blocks": 2588}}))
    return folder


def test_command_draws_writes_and_fails_beyond_the_bounds(tmp_path, capsys):
    data, picture, file = small_data(tmp_path), tmp_path / "v.png", tmp_path / "v.yaml"
    arguments = ["--data", str(data), "--plot", str(picture), "--write", str(file)]
    assert main(["reproduce", "vllm-4090", *arguments]) == 1
    captured = capsys.readouterr()
    assert "p99_tpot_ms *" in captured.out
    assert "off by more than 3 %" in captured.err
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "first 100 of 300 requests" in file.read_text().replace("\n", " ").replace("  ", " ")


@pytest.mark.parametrize("missing", ["requests.jsonl", "meta.json"])
def test_missing_measurements_are_one_line(tmp_path, capsys, missing):
    data = small_data(tmp_path)
    (data / MEASURED / missing).unlink()
    assert main(["reproduce", "vllm-4090", "--data", str(data)]) == 2
    assert missing in capsys.readouterr().err
