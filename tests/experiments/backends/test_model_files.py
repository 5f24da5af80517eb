"""One model file serves both backends, and what is wrong with one is one line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.experiments.helpers.small_experiments import small, write
from tests.paths import ROOT
from twinserve.experiments.backends.real import check_real
from twinserve.experiments.backends.real_config import notes_on_model, real_engine_config
from twinserve.experiments.config.catalog import load_model
from twinserve.experiments.config.load import experiment_of
from twinserve.experiments.errors import ConfigError
from twinserve.experiments.identity import identify
from twinserve.experiments.settings.paths import packaged_names
from twinserve.run_core.model_config import Llama3RopeScaling

MADE_UP = {
    "name": "made/Up",
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 80,
    "vocab_size": 300,
    "rms_norm_eps": 1.0e-5,
    "rope_theta": 20_000.0,
    "max_position_embeddings": 256,
    "eos_token_ids": [7],
}
DUMMY = {"name": "made_up.yaml", "load_format": "dummy", "dtype": "float32"}
ROOFLINE = {"kind": "roofline", "hardware": "h200"}


def experiment(tmp_path, **changes):
    write(tmp_path, MADE_UP, "made_up.yaml")
    return experiment_of(small(**{"model": DUMMY, **changes}), source="text", base_dir=tmp_path)


@pytest.mark.parametrize("backend", ["sim", "real"])
def test_a_made_up_model_file_serves_a_roofline_and_an_engine_with_random_weights(run, tmp_path, backend):
    if backend == "real":
        pytest.importorskip("torch")
    write(tmp_path, MADE_UP, "made_up.yaml")
    data = small(model=DUMMY, backend=backend, sim__cost_model=ROOFLINE, real={"device": "cpu"})
    assert run(data).code == 0
    (result,) = (tmp_path / "out").glob("*/result.json")
    assert json.loads(result.read_text())["completed"] == 6
    if backend == "real":
        manifest = json.loads(result.with_name("manifest.json").read_text())
        expected = load_model("made_up.yaml", "float32", tmp_path)
        assert (manifest["model"], manifest["num_parameters"]) == ("made/Up", expected.num_parameters)


def test_a_file_gives_the_engine_all_that_a_forward_pass_needs(tmp_path):
    config = real_engine_config(experiment(tmp_path)).model.config
    values = (config.rms_norm_eps, config.rope_theta, config.eos_token_ids, config.dtype)
    assert values == (1e-5, 20_000.0, (7,), "float32")


def test_packaged_files_name_what_their_checkpoints_have(tmp_path):
    llama = load_model("meta-llama/Llama-3.1-8B", "bfloat16", tmp_path)
    assert llama.rope_scaling == Llama3RopeScaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
    )
    assert (llama.rope_theta, llama.rms_norm_eps, llama.max_position_embeddings) == (500_000.0, 1e-5, 131_072)
    assert llama.num_parameters / 1e9 == pytest.approx(8.03, rel=2e-3)
    for name in packaged_names("models"):
        model = load_model(name, "bfloat16", tmp_path)
        assert model.eos_token_ids
        assert model.qk_norm == model.name.startswith("Qwen")


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"rope_tetha": 1.0}, "rope_tetha: unknown key; did you mean rope_theta?"),
        ({"dtype": "float16"}, "dtype: unknown key"),
        ({"rope_scaling": {"factor": 8.0}}, "rope_scaling.low_freq_factor: is missing"),
        ({"rope_scaling": 8.0}, "rope_scaling: got 8.0; should be a mapping"),
        ({"eos_token_ids": 7}, "eos_token_ids: got 7"),
        ({"hidden_size": 0}, "hidden_size is 0; should be a whole number, 1 or more"),
        ({"num_attention_heads": 5}, "num_attention_heads is no multiple of num_key_value_heads"),
    ],
)
def test_a_wrong_model_file_is_one_line(tmp_path, changes, complaint):
    path = write(tmp_path, MADE_UP | changes, "made_up.yaml")
    with pytest.raises(ConfigError) as error:
        load_model("made_up.yaml", "float32", tmp_path)
    assert f"{path.name}: {complaint}" in str(error.value)


def test_an_unknown_model_with_random_weights_is_refused_with_what_is_near(tmp_path):
    unknown = experiment(tmp_path, model={"name": "Qwen/Qwen3-9B", "load_format": "dummy"})
    with pytest.raises(ConfigError, match=r"model\.name: no models file for 'Qwen/Qwen3-9B'; did you mean qwen3-"):
        real_engine_config(unknown)


def test_the_model_file_is_part_of_a_real_run_with_random_weights(tmp_path):
    first = identify(experiment(tmp_path, backend="real"), "code")
    write(tmp_path, MADE_UP | {"rope_theta": 1e6}, "made_up.yaml")
    data = small(model=DUMMY, backend="real")
    assert identify(experiment_of(data, source="text", base_dir=tmp_path), "code").run_id != first.run_id
    assert "model.name" in first.inputs


def test_a_checkpoint_that_is_not_the_simulated_model_is_noted(tmp_path):
    model = {"name": "made_up.yaml", "path": "folder", "dtype": "float32"}
    both = experiment(tmp_path, model=model, sim__cost_model=ROOFLINE)
    write(tmp_path, MADE_UP | {"num_hidden_layers": 4, "rope_theta": 1e6}, "served.yaml")
    served = load_model("served.yaml", "float32", tmp_path)
    (note,) = notes_on_model(both, served)
    assert note == "the checkpoint of model.path ran, and model.name made/Up has another num_hidden_layers"
    assert notes_on_model(both, load_model("made_up.yaml", "float32", tmp_path)) == ()
    assert notes_on_model(experiment(tmp_path, model=model), served) == ()
    nameless = experiment(tmp_path, model=model | {"name": "none/Such"}, sim__cost_model=ROOFLINE)
    assert notes_on_model(nameless, served) == ()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"real__attention_backend": "fa2"}, "fa2 cannot be used: block_size must be a multiple of 256 (is 16)"),
        ({"real__attention_backend": "fa3", "model__dtype": "float32"}, "fa3 cannot be used: it computes in float16"),
        ({"real": {"attention_backend": "triton", "device": "cpu"}}, "triton cannot be used: it needs a CUDA device"),
    ],
)
def test_an_attention_backend_that_cannot_serve_is_refused_without_a_device(tmp_path, changes, complaint):
    model = {"name": "made_up.yaml", "load_format": "dummy"}
    with pytest.raises(ConfigError) as error:
        check_real(experiment(tmp_path, **{"model": model, **changes}))
    assert str(error.value).startswith(f"real.attention_backend: {complaint}")


def test_an_attention_backend_that_can_serve_passes(tmp_path):
    model = {"name": "made_up.yaml", "load_format": "dummy"}
    check_real(experiment(tmp_path, model=model, real__attention_backend="fa2", engine__block_size=256))
    check_real(experiment(tmp_path, model=model, real__attention_backend="sdpa"))


def test_without_torch_everything_of_experiments_can_be_imported_and_an_engine_described(tmp_path):
    """Only a call that starts the engine needs torch."""
    path = write(tmp_path, small(model={"name": "Qwen/Qwen3-8B", "load_format": "dummy"}, backend="real"))
    script = (
        "import importlib, pkgutil, sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'transformers', 'safetensors', 'triton')))\n"
        "import twinserve.experiments\n"
        "for module in pkgutil.walk_packages(twinserve.experiments.__path__, 'twinserve.experiments.'):\n"
        "    importlib.import_module(module.name)\n"
        "from twinserve.experiments.backends.real_config import real_engine_config\n"
        "from twinserve.experiments.config.load import load_experiment\n"
        f"assert real_engine_config(load_experiment({str(path)!r})).model.config.hidden_size == 4096\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, capture_output=True)
