"""A profile that takes a second: a tiny model on the CPU, the designed part of a small grid."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.experiments.helpers.small_experiments import small, write
from twinserve.experiments.files.parquet import read_columns
from twinserve.experiments.profile.run import ProfileSettings

QUICK = ProfileSettings(num_visits=2, density=0.0)


def write_config(folder: Path, checkpoint: Path, **changes: Any) -> Path:
    """An experiment that runs ``checkpoint`` on the CPU, with dotted keys (``engine__policy="static"``) replaced."""
    usual = {
        "model": {"path": str(checkpoint), "dtype": "float32"},
        "real": {"device": "cpu"},
        "engine__max_num_seqs": 2,
        "engine__max_num_batched_tokens": 16,
        "engine__max_model_len": 32,
    }
    return write(folder, small(**{**usual, **changes}))


def steps_of(folder: Path) -> dict[str, list[Any]]:
    return read_columns(folder / "profile.parquet")


def keys_of(folder: Path) -> list[tuple[int, int]]:
    """(shape_id, repeat) of every row."""
    steps = steps_of(folder)
    return list(zip(steps["shape_id"], steps["repeat"], strict=True))


def runner_keys(folder: Path) -> list[tuple[int, int]]:
    """(shape_id, repeat) of the rows that were measured on the runner alone."""
    return [key for key, source in zip(keys_of(folder), steps_of(folder)["source"], strict=True) if source == "runner"]


def manifest_of(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return manifest


def only_folder(out: Path) -> Path:
    (folder,) = out.iterdir()
    return folder


def interrupt_after(num_pieces: int) -> Callable[[int, int], None]:
    """A progress bar at which the user loses patience."""

    def progress(done: int, total: int) -> None:
        if done == num_pieces:
            raise KeyboardInterrupt

    return progress
