"""One experiment: run it, simulate it in memory, or read it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.names import RESULT
from twinserve.experiments.files.progress import LateProgress
from twinserve.experiments.report import format_table
from twinserve.experiments.run import resolved_config, run_experiment, run_in_memory
from twinserve.experiments.store.run_folder import RunFolder, read_config, read_result, read_run_folder
from twinserve.library.configs import Config, Settings, load_config
from twinserve.library.files import saved
from twinserve.run_core.record import RunRecord
from twinserve.sched_core.policies.choice import PolicyChoice

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

RERUN = "give the folder of a finished run"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Run:
    """A finished run. ``print`` shows its results as a table.

    ``result`` holds what ``result.json`` does, ``config`` the whole configuration with its defaults; ``folder`` is None
    for a run in memory. The record and the tables are made when they are first asked for.
    """

    result: Mapping[str, Any]
    config: Mapping[str, Any]
    folder: Path | None = None
    read_record: Callable[[], RunRecord]

    @property
    def run_id(self) -> str:
        """Equal exactly for runs that could only come out the same."""
        return str(self.result["run_id"])

    @cached_property
    def record(self) -> RunRecord:
        """All that was recorded, in integer nanoseconds."""
        return self.read_record()

    @cached_property
    def requests(self) -> pd.DataFrame:
        """A row per request, latencies in ms; see ``tables.requests_table``."""
        from twinserve.library.tables import requests_table

        return requests_table(self.record, self.config)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """A row per step; see ``tables.steps_table``."""
        from twinserve.library.tables import steps_table

        return steps_table(self.record)

    @cached_property
    def tokens(self) -> pd.DataFrame:
        """A row per token with the gap before it; see ``tables.tokens_table``."""
        from twinserve.library.tables import tokens_table

        return tokens_table(self.record, self.config)

    def plot_cdf(self, path: str | PathLike[str] | None = None) -> Figure:
        """The distributions of TTFT, TPOT and ITL; also written to ``path`` (.png, .pdf or .svg) when it is given."""
        from twinserve.experiments.plots.run import plot_cdf

        return saved(plot_cdf(self._parts()), path)

    def plot_timeline(self, path: str | PathLike[str] | None = None) -> Figure:
        """Batch composition, KV cache and queue over time; also written to ``path`` when it is given."""
        from twinserve.experiments.plots.run import plot_timeline

        return saved(plot_timeline(self._parts()), path)

    def _parts(self) -> RunFolder:
        return RunFolder(record=self.record, config=dict(self.config), result=dict(self.result))

    def __str__(self) -> str:
        return format_table(self.result)

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else f"in {self.folder}"
        return f"<Run {self.run_id} of {self.result['label']}, {where}>"


def run(
    config: Config,
    *,
    set: Settings = None,
    backend: str | None = None,
    out: str | PathLike[str] = "out",
    check: bool = False,
    force: bool = False,
    policies: Mapping[str, PolicyChoice] | None = None,
    progress: bool = False,
) -> Run:
    """Run an experiment on the backend that it names and keep it below ``out``, as ``twinserve run`` does.

    ``config``, ``set``, ``backend`` and ``policies`` are those of ``load_config``. A run that is finished there is
    read, not repeated, unless ``force``. ``check`` verifies the scheduler's invariants at every step.

    Raises:
        ConfigError: the configuration, an input file or the output folder is wrong.
        RunError: the run began and could not go on; what it wrote stays.
    """
    experiment = load_config(config, set=set, backend=backend, policies=policies)
    with LateProgress(experiment.config.name, "requests", enabled=progress) as bar:
        finished = run_experiment(experiment, Path(out), force=force, check=check, on_progress=bar.update)
    return read_run(finished.folder)


def simulate(
    config: Config,
    *,
    set: Settings = None,
    check: bool = False,
    policies: Mapping[str, PolicyChoice] | None = None,
    progress: bool = False,
) -> Run:
    """Simulate an experiment, whichever backend it names, and write nothing; arguments as for ``run``.

    Raises:
        ConfigError: the configuration or an input file is wrong, or has no ``sim`` section.
        RunError: the run began and could not go on.
    """
    experiment = load_config(config, set=set, backend="sim", policies=policies)
    with LateProgress(experiment.config.name, "requests", enabled=progress) as bar:
        result, record = run_in_memory(experiment, check=check, on_progress=bar.update)
    return Run(result=result, config=resolved_config(experiment), read_record=lambda: record)


def read_run(folder: str | PathLike[str]) -> Run:
    """The finished run in ``folder``.

    Raises:
        ConfigError: ``folder`` holds no finished run; its tables are read, and checked, when they are used.
    """
    place = Path(folder)
    if not (place / RESULT).is_file():
        raise ConfigError(f"holds no {RESULT}; {RERUN}", file=place)
    return Run(
        result=read_result(place),
        config=read_config(place),
        folder=place,
        read_record=lambda: read_run_folder(place).record,
    )


def plot_cdfs(runs: Mapping[str, Run], path: str | PathLike[str] | None = None) -> Figure:
    """TTFT, TPOT and ITL of several runs in the same axes, a colour per label; also written to ``path``, if given."""
    from twinserve.experiments.plots.cdf import plot_compare_cdfs

    return saved(plot_compare_cdfs({label: run.record for label, run in runs.items()}), path)
