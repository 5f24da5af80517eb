"""The command line, as the tests of every part of it use it."""

from __future__ import annotations

import shutil
from functools import partial

import pytest

from tests.experiments.helpers.real_runs import run_real
from tests.experiments.helpers.small_experiments import CommandLine, write
from tests.experiments.helpers.small_profiles import write_config


@pytest.fixture
def twinserve(capsys):
    return CommandLine(capsys)


@pytest.fixture
def run(twinserve, tmp_path):
    def run(data, *arguments):
        return twinserve("run", write(tmp_path, data), "--out", tmp_path / "out", *arguments)

    return run


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """The folder of a tiny model; not to be changed."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.real_backend.tiny_qwen3 import save_checkpoint

    return save_checkpoint(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def config(tmp_path, checkpoint):
    """Writes an experiment on the tiny model, of which a profile takes a second."""
    return partial(write_config, tmp_path, checkpoint)


@pytest.fixture(scope="session")
def eventful_run(tmp_path_factory):
    """The folder of a finished real run; not to be changed."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return run_real(tmp_path_factory.mktemp("eventful"))


@pytest.fixture
def copied(eventful_run, tmp_path):
    """A copy of the run, to be damaged."""
    return shutil.copytree(eventful_run, tmp_path / "copied")
