"""Compiles the scheduler's hot modules, when asked to: ``TWINSERVE_COMPILE=1 pip install --no-build-isolation .``.

They are the same sources, turned into C by mypyc (install it and setuptools >= 77 before); a C compiler is
needed. Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

HOT = (
    "run_core/record",
    "run_core/session",
    "sched_core/admitting",
    "sched_core/blocks/block_manager",
    "sched_core/blocks/block_pool",
    "sched_core/blocks/cache_index",
    "sched_core/counters",
    "sched_core/draft",
    "sched_core/engine",
    "sched_core/features",
    "sched_core/finishing",
    "sched_core/journal",
    "sched_core/output_log",
    "sched_core/pacing",
    "sched_core/requests/request",
    "sched_core/running_table",
    "sched_core/scheduled_rows",
)


def extensions() -> list[Extension]:
    if os.environ.get("TWINSERVE_COMPILE") != "1":
        return []
    from mypyc.build import mypycify

    return mypycify(
        [
            "--config-file=",
            "--ignore-missing-imports",
            "--follow-imports=silent",
            *(f"twinserve/{name}.py" for name in HOT),
        ]
    )


setup(ext_modules=extensions())
