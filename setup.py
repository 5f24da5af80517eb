"""Compiles the scheduler's hot modules, when asked to: ``TWINSERVE_COMPILE=1 pip install --no-build-isolation .``.

They are the same sources, turned into C by mypyc (install it and setuptools >= 77 before); a C compiler is
needed. Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

HOT = (
    "block_manager",
    "block_pool",
    "boundary",
    "cache_index",
    "draft",
    "engine",
    "features",
    "finishing",
    "journal",
    "output_log",
    "record",
    "request",
    "running_table",
    "schedule",
)


def extensions() -> list[Extension]:
    if os.environ.get("TWINSERVE_COMPILE") != "1":
        return []
    from mypyc.build import mypycify

    return mypycify(["--config-file=", "--ignore-missing-imports", *(f"sched_core/{name}.py" for name in HOT)])


setup(ext_modules=extensions())
