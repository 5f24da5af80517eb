"""These tests run models; without the real backend's libraries there is nothing to collect."""

from importlib.util import find_spec
from pathlib import Path

import pytest

has_torch = find_spec("torch") is not None and find_spec("transformers") is not None
collect_ignore_glob = [] if has_torch else ["test_*.py"]

if has_torch:
    import torch

    torch.set_num_threads(1)  # tiny tensors: threads would only wait for each other


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a tiny model."""
    from tests.real_backend.tiny_qwen3 import save_checkpoint

    return save_checkpoint(tmp_path_factory.mktemp("model"))
