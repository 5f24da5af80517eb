"""``twinserve profile`` through the command line: table, picture, exit status, wrong input."""

from __future__ import annotations

import re
import shutil
from functools import partial
from itertools import count

import pytest

from tests.experiments.helpers.small_experiments import small, write
from tests.experiments.helpers.small_profiles import interrupt_after, only_folder

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

torch.set_num_threads(1)  # tiny tensors: threads would only wait for each other


@pytest.fixture
def command(twinserve, tmp_path):
    """``twinserve profile`` of a file, as quick as it goes."""

    def command(path, *arguments):
        quick = ("--visits", 1, "--density", 0, "--out", tmp_path / "profiles")
        return twinserve("profile", path, *quick, *arguments)

    return command


def test_the_command_prints_a_table_and_draws_a_picture(command, config, tmp_path):
    answer = command(config())
    assert answer.code == 0, answer.err
    folder = only_folder(tmp_path / "profiles")
    assert (folder / "profile.png").stat().st_size > 10_000
    for family in ("decode", "prefill", "mixed", "engine"):
        assert family in answer.out
    assert f"Profile in {folder}" in answer.out
    table = answer.out[answer.out.index("family") : answer.out.index("Picture in")]
    assert "\u2026" not in table
    assert max(map(len, table.splitlines())) <= 80
    again = command(config())
    assert "was already there; --force measures anew" in again.out


def test_a_file_without_backend_or_real_section_can_be_profiled(command, config, checkpoint, tmp_path):
    data = small(model={"path": str(checkpoint), "dtype": "float32"})
    answer = command(write(tmp_path, data), "--set", "real.device=cpu", "--set", "engine.max_num_seqs=1")
    assert answer.code == 0, answer.err


def test_ctrl_c_exits_with_130_and_the_same_command_goes_on(command, config, monkeypatch, tmp_path):
    from twinserve.experiments.files.progress import LateProgress

    with monkeypatch.context() as patch:
        patch.setattr(LateProgress, "update", lambda self, done, total: interrupt_after(5)(done, total))
        answer = command(config())
    assert answer.code == 130
    assert answer.line == "twinserve: interrupted; what had finished stays"
    assert "5 of" in command(config()).out


def test_shapes_that_the_time_did_not_allow_are_counted(command, config, monkeypatch):
    monkeypatch.setattr("twinserve.experiments.profile.run.monotonic", partial(next, count()))
    answer = command(config(), "--max-seconds", 3)
    assert answer.code == 0
    assert re.search(r"\d+ of \d+ shapes were not reached; raise --max-seconds", answer.line)


def test_shapes_that_do_not_fit_into_the_pool_are_counted(command, config):
    answer = command(config(engine__num_gpu_blocks_override=1))
    assert answer.code == 0, answer.err
    assert "more do not fit into the KV pool" in answer.out


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("engine.max_model_len=4096", "engine.max_model_len: 4096 is more than the 1024 positions of tiny; lower it"),
        ("engine.num_gpu_blocks_override=null", "engine.num_gpu_blocks_override: is missing; on the CPU"),
        ("real.device=tpu", "real.device: 'tpu' is not a device; use cuda, cuda:1, ... or cpu"),
        ("real.attention_backend=fa2", "real.attention_backend: fa2 cannot be used: it needs a CUDA device"),
        ("model.path=null", "model.path: is missing; give a model folder"),
        ("model.path=gone", "model.path: "),
        ("engine.policy=nosuch", "engine.policy: "),
    ],
)
def test_a_setting_that_cannot_be_profiled_is_named_and_nothing_is_written(
    command, config, tmp_path, setting, complaint
):
    answer = command(config(), "--set", setting)
    assert answer.code == 2
    assert answer.line.startswith(f"twinserve: error: --set {setting}: {complaint}")
    assert not (tmp_path / "profiles").exists()


def test_without_cuda_the_remedies_are_named(command, config, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    answer = command(config(), "--set", "real.device=cuda")
    assert answer.code == 2
    assert "real.device: no CUDA device is available; use the device cpu" in answer.line


def test_an_output_folder_that_cannot_be_written_is_named(twinserve, config, tmp_path):
    (tmp_path / "file").write_text("")
    answer = twinserve("profile", config(), "--out", tmp_path / "file", "--visits", 1, "--density", 0)
    assert answer.code == 2
    assert "cannot be written" in answer.err


def test_a_damaged_profile_or_manifest_is_named(command, config, tmp_path):
    command(config())
    folder = only_folder(tmp_path / "profiles")
    (folder / "profile.parquet").write_bytes(b"PAR1")
    answer = command(config())
    assert answer.code == 2
    assert "profile.parquet: cannot be read" in answer.line
    (folder / "manifest.json").write_text("{")
    assert "manifest.json: cannot be read" in command(config()).line
    shutil.rmtree(folder)
    assert command(config()).code == 0
