"""Checkpoints that are damaged or ask for too much: one line that names file and key, and nothing else."""

from __future__ import annotations

import json
import random
import shutil
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.real_backend.damage import damaged
from tests.real_backend.test_prompts import load, save_tokenizer
from tests.real_backend.tiny_qwen3 import Reference, save_checkpoint
from twinserve.real_backend import EngineError, SamplingParams

PROMPT = (7, 7, 9)
GREEDY = SamplingParams(temperature=0.0, max_tokens=2)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with everything that may be in one."""
    folder = save_tokenizer(save_checkpoint(tmp_path_factory.mktemp("sound")), eos_token="w1")
    data = (folder / "model.safetensors").read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    names = [name for name in json.loads(data[8 : 8 + size]) if name != "__metadata__"]
    index = {"weight_map": dict.fromkeys(names, "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "copy")


def edit(file: Path, drop: tuple[str, ...] = (), **changes: Any) -> None:
    content = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({key: value for key, value in content.items() if key not in drop}))


def use(folder: Path, **options: Any) -> list[int]:
    (output,) = load(folder, **options).generate([PROMPT], GREEDY, show_progress=False)
    return output["token_ids"]


def complaint(folder: Path, **options: Any) -> str:
    with pytest.raises(EngineError) as error:
        use(folder, **options)
    line = str(error.value)
    assert len(line) <= 300
    assert line.isprintable()
    return line


@pytest.mark.parametrize("load_format", ["auto", "dummy"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 2**40),
        ("vocab_size", 2**40),
        ("head_dim", 2**40),
        ("head_dim", 15),
        ("num_hidden_layers", 1e30),
        ("num_hidden_layers", 10**30),
        ("num_hidden_layers", 4.0),
        ("intermediate_size", True),
        ("num_key_value_heads", "2"),
        ("num_key_value_heads", 3),
        ("rms_norm_eps", "int8"),
        ("rms_norm_eps", -1),
        ("rms_norm_eps", None),
        ("rope_theta", "x"),
        ("rope_theta", 10**400),
        ("rope_parameters", [1]),
        ("max_position_embeddings", 0),
        ("tie_word_embeddings", "no"),
        ("dtype", 5),
        ("eos_token_id", ["a"]),
        ("eos_token_id", True),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("quantization_config", {"quant_method": "fp8"}),
    ],
)
def test_a_value_of_a_wrong_kind_or_size_is_named_with_file_and_key(
    copy: Path, key: str, value: Any, load_format: str
) -> None:
    edit(copy / "config.json", **{key: value})
    (copy / "generation_config.json").unlink(missing_ok=True)
    line = complaint(copy, load_format=load_format)
    assert str(copy)[:100] in line
    assert "config.json" in line
    assert key in line or key.removeprefix("num_key_value_").removeprefix("num_") in line


def test_a_llama3_rope_that_divides_by_zero_is_named(copy: Path) -> None:
    scaling = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 1}
    edit(copy / "config.json", rope_parameters={**scaling, "original_max_position_embeddings": 64})
    assert "rope_parameters.high_freq_factor is 1.0; should be more than low_freq_factor" in complaint(copy)


@pytest.mark.parametrize("size", [2**20, 4096, 128])
def test_a_size_is_compared_with_the_stored_tensors_before_memory_is_taken(copy: Path, size: int) -> None:
    edit(copy / "config.json", hidden_size=size)
    assert f"has shape [128, 64], the config asks for [128, {size}]" in complaint(copy)


def test_more_layers_than_tensors_are_noticed_at_once(copy: Path) -> None:
    edit(copy / "config.json", num_hidden_layers=4096)
    assert "4096 layers in config.json" in complaint(copy)


def test_random_weights_beyond_the_memory_are_refused(copy: Path) -> None:
    edit(copy / "config.json", hidden_size=2**20, intermediate_size=2**22)
    assert "GiB for its weights" in complaint(copy, load_format="dummy")


def test_a_pool_beyond_the_memory_is_refused(copy: Path) -> None:
    assert "engine.num_gpu_blocks_override: " in complaint(copy, num_gpu_blocks_override=10**12)


def test_an_architectures_null_for_its_default_is_as_if_left_out(copy: Path, sound: Path) -> None:
    edit(copy / "config.json", attention_bias=None, use_sliding_window=None)
    (copy / "tokenizer_config.json").unlink()
    assert use(copy) == use(sound)


@pytest.mark.parametrize("missing", [{"drop": ("head_dim",)}, {"head_dim": None}])
def test_a_qwen3_without_head_dim_has_128(tmp_path: Path, missing: dict[str, Any]) -> None:
    folder = save_checkpoint(tmp_path, head_dim=128)
    reference = Reference(folder).greedy(PROMPT, 2)
    edit(folder / "config.json", **missing)
    assert use(folder) == reference


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", "a\\b", "x\x00", 5])
def test_an_index_stays_in_its_folder(copy: Path, name: Any) -> None:
    shutil.copy(copy / "model.safetensors", copy.parent / "x.safetensors")
    index = copy / "model.safetensors.index.json"
    edit(index, weight_map={**json.loads(index.read_text())["weight_map"], "model.norm.weight": name})
    assert f"{index}" in complaint(copy)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"[" * 100_000, b"\xff\xfe", b"9" * 6000, b'{"a":' * 50_000])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json"])
def test_a_file_that_is_no_json_object_is_named(copy: Path, name: str, content: bytes) -> None:
    (copy / name).write_bytes(content)
    assert str(copy / name) in complaint(copy)


def test_a_tokenizer_that_cannot_be_built_names_its_files(copy: Path) -> None:
    edit(copy / "tokenizer.json", model={"type": "nothing"})
    assert f"the tokenizer of {copy} (tokenizer_config.json, tokenizer.json) cannot be used" in complaint(copy)


def test_a_tokenizer_without_its_config_says_what_is_missing(copy: Path) -> None:
    (copy / "tokenizer_config.json").unlink()
    with pytest.raises(EngineError, match=r"has tokenizer files but no tokenizer_config\.json, .*; give prompts as"):
        load(copy).generate(["w1"], GREEDY, show_progress=False)


def refusal(folder: Path, what: str) -> str:
    """The line that refuses the checkpoint, "" when it runs."""
    try:
        use(folder)
    except EngineError as error:
        return str(error)
    except BaseException as error:
        raise AssertionError(what) from error
    return ""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def hang(*_: object) -> None:
        raise AssertionError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_damaged_checkpoints_run_or_are_refused_in_one_line(sound: Path, tmp_path: Path, count: int) -> None:
    rng = random.Random(count)
    refused = 0
    for number in range(count):
        folder = tmp_path / "damaged"
        what = damaged(sound, folder, rng)
        with at_most(20):
            line = refusal(folder, f"mutant {number}: {what}")
        assert len(line) <= 300, what
        assert line == "" or line.isprintable(), what
        refused += line != ""
        shutil.rmtree(folder)
    assert count * 0.3 < refused < count
