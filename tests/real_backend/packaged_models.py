"""Models of the catalogue with random weights."""

from __future__ import annotations

from pathlib import Path

from twinserve.experiments.config.catalog import load_model
from twinserve.real_backend.engine_config import ModelSource


def random_weights(name: str) -> ModelSource:
    """The packaged model ``name`` in bfloat16."""
    return ModelSource(config=load_model(name, "bfloat16", Path()), load_format="dummy")
