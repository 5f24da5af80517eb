"""A tiny checkpoint, and seeded damage to its files: by grammar for JSON and headers, by bytes for anything."""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

JSON_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "model.safetensors.index.json",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    3,
    7,
    16,
    64,
    2**31,
    2**40,
    2**63,
    10**30,
    1e30,
    1e320,
    0.5,
    1e-6,
    "",
    "int8",
    "default",
    "yarn",
    "../x",
    "/etc/passwd",
    "\ud800",
    "x" * 5000,
    [],
    [[]],
    {},
    {"a": 1},
    [1, 2],
    ["a"],
    [None],
)
RAW = (
    b"",
    b"null",
    b"[]",
    b"{",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 6000,
    b"\xff\xfe{}",
    b"NaN",
    b'{"hidden_size": 1' + b"0" * 6000 + b"}",
    b"\x00" * 64,
)
FIELDS = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "rms_norm_eps",
    "rope_theta",
    "rope_parameters",
    "rope_scaling",
    "max_position_embeddings",
    "tie_word_embeddings",
    "dtype",
    "torch_dtype",
    "eos_token_id",
    "architectures",
    "layer_types",
    "quantization_config",
    "auto_map",
    "tokenizer_class",
    "added_tokens_decoder",
    "model",
    "weight_map",
)


def damaged(sound: Path, folder: Path, rng: random.Random) -> str:
    """A copy of ``sound`` in ``folder`` with one to three faults; says which."""
    shutil.copytree(sound, folder)
    return "; ".join(_damage(folder, rng) for _ in range(rng.choice((1, 1, 2, 3))))


def _damage(folder: Path, rng: random.Random) -> str:
    kinds: list[Callable[[Path, random.Random], str]] = [_json_value, _json_value, _json_value, _header, _bytes, _file]
    try:
        return rng.choice(kinds)(folder, rng)
    except OSError as error:  # an earlier fault took the file
        return f"nothing ({error.strerror})"


def _json_value(folder: Path, rng: random.Random) -> str:
    file = folder / rng.choice(JSON_FILES)
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        content = {}
    what = _mutate(content, rng) if isinstance(content, dict) else "nothing"
    file.write_text(json.dumps(content))
    return f"{file.name}: {what}"


def _mutate(content: dict[str, Any], rng: random.Random) -> str:
    """Replaces, removes or adds a key at any depth."""
    while True:
        key = rng.choice([*content, rng.choice(FIELDS)])
        inner = content.get(key)
        if isinstance(inner, dict) and inner and rng.random() < 0.6:
            content = inner
            continue
        if rng.random() < 0.15:
            content.pop(key, None)
            return f"without {key}"
        value = rng.choice(VALUES)
        if isinstance(inner, list) and inner and rng.random() < 0.5:
            inner[rng.randrange(len(inner))] = value
        else:
            content[key] = value
        return f"{key} = {str(value)[:30]!r}"


def _header(folder: Path, rng: random.Random) -> str:
    file = folder / "model.safetensors"
    data = file.read_bytes() if file.is_file() else b""
    try:
        (size,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + size])
        what = _mutate(header, rng)
    except (struct.error, ValueError, AttributeError):
        return "no header"
    text = json.dumps(header).encode()
    length = len(text) if rng.random() < 0.9 else rng.choice((0, 1, 2**20, 2**62))
    file.write_bytes(struct.pack("<Q", length) + text + data[8 + size :])
    return f"header: {what}, length {length}"


def _bytes(folder: Path, rng: random.Random) -> str:
    file = rng.choice(sorted(path for path in folder.iterdir() if path.is_file()))
    data = bytearray(file.read_bytes())
    kind = rng.randrange(4)
    if kind == 0 and data:
        del data[rng.randrange(len(data)) :]
    elif kind == 1 and data:
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(min(len(data), 4096))] = rng.randrange(256)
    elif kind == 2:
        data = bytearray(rng.choice(RAW))
    else:
        at = rng.randrange(len(data) + 1)
        data[at:at] = rng.choice(RAW)[:100]
    file.write_bytes(bytes(data))
    return f"{file.name}: bytes, kind {kind}"


def _file(folder: Path, rng: random.Random) -> str:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    file = rng.choice(files)
    kind = rng.randrange(3)
    file.unlink()
    if kind == 1:
        file.mkdir()
    elif kind == 2:
        file.symlink_to(rng.choice(("nowhere", file.name, "/dev/null", "config.json")))
    return f"{file.name}: {('gone', 'a folder', 'a link')[kind]}"
