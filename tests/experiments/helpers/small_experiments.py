"""An experiment that takes milliseconds, and the files and commands around it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from twinserve.experiments.cli.main import main
from twinserve.experiments.settings.yaml_loader import dump_yaml

SMALL: Mapping[str, Any] = {
    "name": "small",
    "engine": {
        "max_num_batched_tokens": 64,
        "max_num_seqs": 4,
        "max_model_len": 256,
        "block_size": 16,
        "num_gpu_blocks_override": 64,
    },
    "sim": {"cost_model": {"kind": "linear", "base_ms": 5.0, "per_token_ms": 0.1}},
    "workload": {
        "kind": "synthetic",
        "num_prompts": 6,
        "input_len": {"dist": "uniform", "min": 4, "max": 100},
        "output_len": {"dist": "fixed", "value": 5},
        "arrival": {"process": "poisson", "request_rate": 20.0},
    },
}


def small(**changes: Any) -> dict[str, Any]:
    """A copy of SMALL with dotted keys (``engine__policy="static"``) replaced."""
    data = copy.deepcopy(dict(SMALL))
    for dotted, value in changes.items():
        section = data
        *parents, name = dotted.split("__")
        for parent in parents:
            section = section.setdefault(parent, {})
        section[name] = value
    return data


def write(folder: Path, data: Mapping[str, Any], name: str = "experiment.yaml") -> Path:
    path = folder / name
    path.write_text(dump_yaml(dict(data)), encoding="utf-8")
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of an error."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


class CommandLine:
    """``twinserve`` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Answer:
        self._capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        return Answer(code=code, out=out, err=err)
