"""Model folders and settings that a real run cannot use: one line through the command line, exit 2."""

from __future__ import annotations

import json

import pytest

from tests.experiments.helpers.small_experiments import CommandLine, small, write

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from tests.real_backend.tiny_qwen3 import save_checkpoint

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
    """A checkpoint beside the experiment, which names it by a relative path."""
    return save_checkpoint(tmp_path / "tiny")


@pytest.fixture
def run(capsys, tmp_path):
    twinserve = CommandLine(capsys)

    def run(*settings, **changes):
        model = {"path": "tiny", "dtype": "float32"}
        data = small(model=model, backend="real", real={"device": "cpu"}, **{"workload__num_prompts": 2, **changes})
        data["workload"]["arrival"] = {"process": "all_at_once"}
        options = [part for setting in settings for part in ("--set", setting)]
        return twinserve("run", write(tmp_path, data), "--out", tmp_path / "out", *options)

    return run


def edit(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_relative_model_folder_is_beside_the_yaml(folder, run, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert run().code == 0


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "architecture MambaForCausalLM is not supported"),
        ({"architectures": "Qwen3ForCausalLM"}, "architecture none named is not supported"),
        ({"architectures": {"a": 1}}, "architecture none named is not supported"),
        ({"num_hidden_layers": "two"}, "config.json: num_hidden_layers is 'two'; should be a whole number from 1"),
        ({"hidden_size": 64.5}, "config.json: hidden_size is 64.5; should be a whole number"),
        ({"num_attention_heads": 0}, "config.json: num_attention_heads is 0; should be a whole number"),
        ({"num_key_value_heads": 3}, "num_attention_heads is no multiple of num_key_value_heads"),
        ({"eos_token_id": "end"}, "eos_token_id is 'end'; should be one token id or a list of them"),
        ({"rope_parameters": "x"}, "config.json: rope_parameters is 'x'; should be an object"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope type 'yarn' is not supported"),
        ({"intermediate_size": 100}, "has shape [96, 64], the config asks for [100, 64]"),
        ({"num_hidden_layers": 3}, "11 tensors are missing from the checkpoint"),
    ],
)
def test_a_config_that_cannot_be_used_is_named(folder, run, changes, complaint):
    edit(folder, **changes)
    answer = run()
    assert answer.code == 2
    assert complaint in answer.line


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        (WEIGHTS, b"", "is not a readable safetensors file"),
        (WEIGHTS, b"\xff" * 500, "is not a readable safetensors file"),
        (INDEX, b"{}", "is not a valid index"),
        (INDEX, b"\xff", "index.json is not valid JSON"),
        (INDEX, b'{"weight_map": {"a": 3}}', "is not a valid index: it has no weight_map of tensor names to files"),
        ("config.json", b"{", "config.json is not valid JSON"),
        ("config.json", b"[]", "config.json does not hold a JSON object"),
    ],
)
def test_a_damaged_file_of_the_checkpoint_is_named(folder, run, name, content, complaint):
    (folder / name).write_bytes(content)
    answer = run()
    assert answer.code == 2
    assert complaint in answer.line


def test_cut_off_weights_are_named(folder, run):
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:5000])
    assert f"{WEIGHTS} is not a readable safetensors file" in run().line


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("engine.max_model_len=4096", "engine.max_model_len: 4096 is more than the 1024 positions of tiny; lower it"),
        ("engine.num_gpu_blocks_override=null", "engine.num_gpu_blocks_override: is missing; on the CPU"),
        ("real.device=tpu", "real.device: 'tpu' is not a device; use cuda, cuda:1, ... or cpu"),
        ("real.attention_backend=fa2", "real.attention_backend: fa2 cannot be used: it needs a CUDA device"),
        ("engine.cuda_graph_sizes={decode: [1]}", "engine.cuda_graph_sizes: attention backend sdpa supports no CUDA"),
        ("model.path=null", "model.path: is missing; give a model folder"),
    ],
)
def test_a_setting_that_the_engine_cannot_serve_is_blamed_on_the_override(folder, run, setting, complaint):
    answer = run(setting)
    assert answer.code == 2
    assert answer.line.startswith(f"twinserve: error: --set {setting}: {complaint}")


def test_without_cuda_the_remedies_are_named(folder, run, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    answer = run("real.device=cuda")
    assert answer.code == 2
    assert "real.device: no CUDA device is available; use the device cpu" in answer.line


def test_prompts_over_max_model_len_are_failures_and_the_rest_runs(folder, run, tmp_path):
    lengths = {"dist": "uniform", "min": 1, "max": 120}
    answer = run(engine__max_model_len=64, workload__num_prompts=8, workload__input_len=lengths)
    assert answer.code == 0
    (path,) = (tmp_path / "out").glob("*/result.json")
    result = json.loads(path.read_text())
    assert result["completed"] > 0
    assert result["completed"] + result["failed"] == 8
    assert result["failures_by_reason"] == {"prompt_exceeds_max_model_len": result["failed"]}
