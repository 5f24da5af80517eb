"""Benchmarks take seconds and say nothing on a busy machine, so they run only when asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("benchmark_only", default=False):
        return
    skip = pytest.mark.skip(reason="runs with --benchmark-only")
    for item in items:
        if item.path.is_relative_to(FOLDER) and "benchmark" in getattr(item, "fixturenames", ()):
            item.add_marker(skip)
