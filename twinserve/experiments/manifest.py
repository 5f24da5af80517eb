"""The manifest of a run: date, host, versions, inputs and wall time, none of which may influence a result."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from twinserve.experiments.backends.backend_run import BackendRun
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.identity import Identity

LIBRARIES = ("twinserve", "numpy", "xxhash", "simpy", "pydantic", "pyarrow")
REAL_LIBRARIES = ("torch", "triton", "transformers", "flash-attn")


def describe_start(experiment: Experiment, identity: Identity, argv: Sequence[str] = ()) -> dict[str, Any]:
    """The part of the manifest that is known before the run."""
    real = experiment.config.backend == "real"
    return {
        "run_id": identity.run_id,
        "backend": experiment.config.backend,
        "source": experiment.source,
        "command": list(argv or sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": platform.node(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in LIBRARIES + (REAL_LIBRARIES if real else ())},
        "inputs": dict(identity.inputs),
        "code": identity.code,
    }


def describe_end(start: dict[str, Any], run: BackendRun, wall_time_s: float) -> dict[str, Any]:
    """The manifest of a finished run."""
    blocks = {"num_blocks": run.blocks.count, "num_blocks_source": run.blocks.source}
    error = {} if run.error is None else {"error": run.reason}
    return {**start, **blocks, **run.facts, **error, "wall_time_s": round(wall_time_s, 3)}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
