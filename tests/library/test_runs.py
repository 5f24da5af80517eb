"""``import twinserve``: its runs say what the command line's do, and its tables what result.json does."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import twinserve
from tests.experiments.helpers.small_experiments import small, write
from tests.paths import ROOT

LATENCIES = ("ttft", "tpot", "e2el", "queue_time", "client_queue_time")
CROWDED = small(
    engine__num_gpu_blocks_override=12,
    workload__num_prompts=30,
    workload__arrival__request_rate=200.0,
    workload__output_len={"dist": "uniform", "min": 1, "max": 60},
    workload__abort={"probability": 0.2, "after_s": 0.5},
    metrics={"percentiles": [50, 90, 99], "warmup_requests": 4},
)


def percentiles(samples):
    return dict(zip((50, 90, 99), np.percentile(samples, [50, 90, 99]).tolist(), strict=True))


def in_result(result, name):
    return {percentile: result[f"p{percentile}_{name}_ms"] for percentile in (50, 90, 99)}


def outcome_of(code):
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return found.stdout.strip()


def test_importing_twinserve_loads_none_of_its_libraries():
    heavy = "{'numpy', 'pandas', 'torch', 'yaml', 'pydantic', 'typer', 'matplotlib'} & set(sys.modules)"
    assert outcome_of(f"import sys, twinserve; print(twinserve.__version__ and {heavy})") == "set()"


def test_every_public_name_is_there():
    assert dir(twinserve) == sorted(twinserve.__all__)
    for name in set(twinserve.__all__) - {"LLM"}:
        assert getattr(twinserve, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        twinserve.simulat  # noqa: B018


def test_a_simulation_in_memory_is_the_stored_run(tmp_path):
    kept, in_memory = twinserve.run(CROWDED, out=tmp_path), twinserve.simulate(CROWDED)
    assert in_memory.result == kept.result
    assert in_memory.config == kept.config
    assert (in_memory.folder, kept.folder) == (None, tmp_path / kept.run_id)
    for name in ("requests", "steps", "tokens"):
        pd.testing.assert_frame_equal(getattr(in_memory, name), getattr(kept, name))


def test_a_simulation_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    twinserve.simulate(small()).plot_cdf()
    assert list(tmp_path.iterdir()) == []


def test_percentiles_of_the_tables_are_those_of_the_result():
    run = twinserve.simulate(CROWDED)
    assert 0 < run.result["completed"] < 26
    requests, tokens = (table[table.measured] for table in (run.requests, run.tokens))
    for name in LATENCIES:
        assert percentiles(requests[f"{name}_ms"].dropna()) == in_result(run.result, name)
    assert percentiles(tokens["itl_ms"].dropna()) == in_result(run.result, "itl")


def test_tables_agree_with_each_other():
    run = twinserve.simulate(CROWDED)
    requests = run.requests.set_index("request_id")
    by_request = run.tokens.groupby("request_id")
    assert by_request.size().to_dict() == requests.output_len[requests.output_len > 0].to_dict()
    gaps = by_request["itl_ms"].mean().reindex(requests.index)
    np.testing.assert_allclose(requests.itl_ms, gaps)
    np.testing.assert_allclose(requests.itl_ms, requests.tpot_ms)
    np.testing.assert_allclose(
        requests.e2el_ms.dropna(), (requests.ttft_ms + by_request["itl_ms"].sum().reindex(requests.index)).dropna()
    )
    assert run.steps.duration_ms.gt(0).all()
    assert run.steps.num_tokens.sum() >= requests.prompt_len[requests.refusal.isna()].sum() - 12 * 16


def test_config_is_a_path_a_name_a_mapping_or_one_loaded_before(tmp_path):
    path = write(tmp_path, small())
    ids = {twinserve.simulate(config).run_id for config in (path, str(path), small(), twinserve.load_config(small()))}
    assert len(ids) == 1
    assert twinserve.simulate("smoke").result["completed"] == 100
    assert {"smoke", "sweeps/token_budget"} <= set(twinserve.list_configs())


def test_set_replaces_values_of_every_kind_of_config(tmp_path):
    setting = {"engine.max_num_seqs": 2}
    for config in (write(tmp_path, small()), small(), twinserve.load_config(small())):
        assert twinserve.simulate(config, set=setting).config["engine"]["max_num_seqs"] == 2
    assert twinserve.load_config(small(), set={"backend": "sim"}, backend="real").config.backend == "real"


def test_a_run_that_is_there_is_read_again(tmp_path):
    first = twinserve.run(small(), out=tmp_path)
    written = (first.folder / "result.json").stat().st_mtime_ns
    assert (twinserve.run(small(), out=tmp_path).folder / "result.json").stat().st_mtime_ns == written
    assert twinserve.read_run(first.folder).result == first.result
    assert first.run_id in repr(first)
    assert "Successful requests" in str(first)


def test_figures_are_returned_and_saved_when_a_path_is_given(tmp_path):
    run = twinserve.simulate(small())
    for draw in (run.plot_cdf, run.plot_timeline):
        assert len(draw(tmp_path / "figure.pdf").axes) == 3
        assert (tmp_path / "figure.pdf").stat().st_size > 5000
    figure = twinserve.plot_cdfs({"one": run, "other": run}, tmp_path / "both.png")
    assert [text.get_text() for text in figure.legends[0].get_texts()][:2] == ["one", "other"]
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_errors_are_one_line_that_names_the_place(tmp_path):
    with pytest.raises(twinserve.ConfigError, match=r"^set engine.max_seqs=3: engine.max_seqs: unknown key; did you"):
        twinserve.simulate(small(), set={"engine.max_seqs": 3})
    with pytest.raises(twinserve.ConfigError, match=r"^the given mapping: workload.kind: got 'syn'; "):
        twinserve.simulate(small(workload__kind="syn"))
    with pytest.raises(twinserve.ConfigError, match=r"holds no result\.json; give the folder of a finished run"):
        twinserve.read_run(tmp_path)
    with pytest.raises(twinserve.ConfigError, match=r"cannot be written|is not"):
        twinserve.simulate(small()).plot_cdf(write(tmp_path, small()) / "cdf.png")
    with pytest.raises(twinserve.RunError, match="a policy refuses work that fits"):
        twinserve.simulate(small(engine__admission="tests.library.hopeless:Never"))
