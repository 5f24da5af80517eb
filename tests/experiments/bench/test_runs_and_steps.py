"""``twinserve bench-engine`` through the command line, with a tiny model on the CPU."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.experiments.helpers.small_experiments import small, write
from twinserve.experiments.bench.cases import BREAKDOWN_STEPS, NAMES


@pytest.fixture
def bench(twinserve, tmp_path):
    """A tiny model on the CPU, a small workload."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.real_backend.tiny_qwen3 import save_checkpoint

    settings = save_checkpoint(tmp_path / "tiny") / "config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "max_position_embeddings": 2048}))
    model = {"path": "tiny", "dtype": "float32"}
    config = write(tmp_path, small(model=model, real={"device": "cpu"}, engine__num_gpu_blocks_override=80))

    def bench(*arguments):
        return twinserve("bench-engine", config, "--quick", "--out", tmp_path / "out", *arguments)

    return bench


def test_rows_are_runs_in_the_output_folder_and_figures_in_one_file(bench, tmp_path):
    settings = ("--set", "engine.max_model_len=2048", "--set", "workload.num_prompts=6")
    answer = bench("--cases", "eager-512,rate-8192,decode-1,decode-256", *settings)
    assert answer.code == 0
    report = json.loads((tmp_path / "out/bench-engine.json").read_text())
    rows = {row["name"]: row for row in report["rows"]}
    assert list(rows) == ["eager-512", "rate-8192", "decode-256", "decode-1"]
    for name, figures in (
        ("eager-512", {"output_throughput"}),
        ("rate-8192", {"p99_ttft_ms", "p99_tpot_ms", "p99_itl_ms"}),
    ):
        row = rows[name]
        assert row["figures"].keys() == figures
        assert all(value > 0 for value in row["figures"].values())
        stored = json.loads((tmp_path / "out" / row["run_id"] / "result.json").read_text())
        assert row["figures"].items() <= stored.items()
        assert stored["completed"] == 6
    assert rows["decode-1"]["figures"]["device_ms"] is None
    assert rows["decode-1"]["figures"]["step_ms"] > 0
    assert rows["decode-256"]["reason"] == "needs 16,384 blocks of 16; the KV pool allows 80"
    assert "needs 16,384 blocks of 16" in answer.out
    assert all(row["published"] == {} and row["limit"] == {} for row in rows.values())
    assert (report["peaks"], report["device"]["name"]) == (None, "cpu")


def test_the_runs_come_before_the_single_steps_which_are_traced(bench):
    shown = bench("--cases", "decode-1,graphs-512").out
    assert shown.index("graphs-512:") < shown.index("decode-1:")


def test_runs_that_are_there_are_not_made_again(bench, tmp_path):
    first = bench("--cases", "graphs-512,host-gap")
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    second = bench("--cases", "graphs-512,host-gap")
    assert first.code == second.code == 0
    assert second.out == first.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before


def test_the_breakdown_is_shown_without_kernels_on_the_cpu(bench, tmp_path):
    answer = bench("--cases", "breakdown", "--set", "engine.max_model_len=2048")
    assert answer.code == 1  # 80 blocks hold none of its steps, and nothing else was asked for
    assert "needs" in answer.out
    steps = json.loads((tmp_path / "out/bench-engine.json").read_text())["breakdown"]
    assert [step["name"] for step in steps] == [case.name for case in BREAKDOWN_STEPS]
    assert all(step["reason"] and step["parts"] is None for step in steps)
    assert not (tmp_path / "out/bench-engine.png").exists()


def test_measured_peaks_bring_limits_that_no_figure_reaches(bench, tmp_path, monkeypatch):
    import twinserve.real_backend.build
    from twinserve.real_backend.bench.results import DevicePeaks

    probe = twinserve.real_backend.build.probe
    peaks = DevicePeaks(matmul_tflops=788.0, copy_tbps=4.3, launch_us=4.0, graph_node_us=1.0)
    monkeypatch.setattr(
        twinserve.real_backend.build, "probe", lambda wanted: replace(probe(wanted), memory_gib=139.8, peaks=peaks)
    )
    answer = bench("--cases", "graphs-512,decode-1", "--set", "engine.max_model_len=2048")
    assert answer.code == 0
    assert "matmul 788 TFLOP/s, copy 4.30 TB/s, eager launch 4.0 us" in answer.out
    run, step = json.loads((tmp_path / "out/bench-engine.json").read_text())["rows"]
    assert run["limit"]["output_throughput"] > run["figures"]["output_throughput"]
    assert 0 < step["limit"]["step_ms"] < step["figures"]["step_ms"]
    assert (tmp_path / "out/hardware.yaml").exists()


# Bad input


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--cases", "graphs-521"), "--cases: there is no row 'graphs-521'; did you mean graphs-512?"),
        (
            ("--set", "engine.max_num_seqs=8"),
            "--set engine.max_num_seqs=8: engine.max_num_seqs: is what the rows of the table differ in; choose rows",
        ),
        (("--set", "workload.arrival.request_rate=3"), "workload.arrival.request_rate: is what the rows of the table"),
        (("--attention-backend", "fa4"), "--attention-backend fa4: real.attention_backend: got 'fa4'"),
        (("--attention-backend", "fa2"), "--attention-backend fa2: real.attention_backend: fa2 cannot be used"),
        (("--set", "engine.num_gpu_blocks_override=null"), "engine.num_gpu_blocks_override: is missing"),
        (("--set", "model.path=null"), "model.path: is missing; give a model folder"),
    ],
)
def test_bad_input_is_one_line(bench, arguments, complaint):
    answer = bench(*arguments)
    assert answer.code == 2
    assert answer.line.startswith("twinserve: error: ")
    assert complaint in answer.line


def test_without_cuda_the_setting_is_named(bench, tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    answer = bench("--set", "real.device=cuda")
    assert answer.code == 2
    assert "--set real.device=cuda: real.device: no CUDA device is available" in answer.line
    assert not (tmp_path / "out").exists()


def test_help_names_every_row(twinserve):
    text = twinserve("bench-engine", "--help").out
    assert [name for name in NAMES if name not in text] == []
