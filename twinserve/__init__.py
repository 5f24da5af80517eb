"""One LLM serving scheduler, two backends: simulate a policy in seconds, confirm it on the GPU with one flag.

``simulate`` runs a configuration and writes nothing; ``run`` and ``sweep`` keep their results in folders, which
``read_run`` and ``read_sweep`` give back. ``LLM`` generates text. What the user gave wrong is a ``ConfigError``, a run
that could not go on a ``RunError``, each with one line. Everything is loaded when it is first used.
"""

from __future__ import annotations

from twinserve.version import __version__

TYPE_CHECKING = False  # as typing's, which a module of that name in the current folder could replace
if TYPE_CHECKING:
    from typing import Any

    from twinserve.experiments.errors import ConfigError, RunError
    from twinserve.library.configs import list_configs, load_config
    from twinserve.library.runs import Run, plot_cdfs, read_run, run, simulate
    from twinserve.library.sweeps import SweepResult, read_sweep, sweep
    from twinserve.real_backend import LLM, SamplingParams

__all__ = [
    "LLM",
    "ConfigError",
    "Run",
    "RunError",
    "SamplingParams",
    "SweepResult",
    "__version__",
    "list_configs",
    "load_config",
    "plot_cdfs",
    "read_run",
    "read_sweep",
    "run",
    "simulate",
    "sweep",
]

_MODULES = (
    ("experiments.errors", ("ConfigError", "RunError")),
    ("library.configs", ("list_configs", "load_config")),
    ("library.runs", ("Run", "plot_cdfs", "read_run", "run", "simulate")),
    ("library.sweeps", ("SweepResult", "read_sweep", "sweep")),
    ("real_backend", ("LLM", "SamplingParams")),
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _MODULES:
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
