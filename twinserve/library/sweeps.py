"""Many experiments: run a sweep, or read one back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.names import SUMMARY
from twinserve.experiments.files.progress import LateProgress
from twinserve.experiments.settings.overrides import Override
from twinserve.experiments.sweep.points import Sweep, load_sweep, sweep_of
from twinserve.experiments.sweep.run import run_sweep
from twinserve.library.configs import MAPPING, Settings, overrides
from twinserve.library.files import saved
from twinserve.library.runs import Run, read_run

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SweepConfig: TypeAlias = str | PathLike[str] | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepResult:
    """The finished points of a sweep; ``failed`` maps the others to what went wrong (empty when read back)."""

    folder: Path
    failed: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row per finished point: run_id, the swept keys, and every figure of its result that is a single value."""
        from twinserve.experiments.store.sweep_folder import read_summary

        return read_summary(self.folder)

    @cached_property
    def runs(self) -> list[Run]:
        """The runs, in the order of ``table``."""
        return [read_run(self.folder / str(run_id)) for run_id in self.table["run_id"]]

    def plot(
        self, path: str | PathLike[str] | None = None, *, percentile: str = "p99", across: str | None = None
    ) -> Figure:
        """TTFT, TPOT and ITL against one swept key, by default the numeric one with most values.

        Also written to ``path`` (.png, .pdf or .svg) when it is given.

        Raises:
            ConfigError: no key but ``seed`` and ``repeat`` takes two values, or ``path`` cannot be written.
        """
        from twinserve.experiments.plots.folder import plot_sweep_folder

        figure = plot_sweep_folder(self.folder, percentile=percentile, across=across)
        if figure is None:
            raise ConfigError("only seeds differ, so there is nothing to plot against", file=self.folder)
        return saved(figure, path)


def sweep(
    config: SweepConfig,
    *,
    set: Settings = None,
    backend: str | None = None,
    out: str | PathLike[str] | None = None,
    executor: str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> SweepResult:
    """Run every point of a sweep that is not finished below ``out`` (``out/NAME`` when not given).

    ``config`` is a sweep file, the name of a packaged one, or a mapping as YAML would give it. ``set`` and ``backend``
    replace values of its base, ``executor`` and ``workers`` say where points run, as for ``twinserve sweep``. A point
    that fails is in ``failed``; the others go on.

    Raises:
        ConfigError: the sweep, the output folder or the executor is wrong.
        RunError: a worker process died; finished runs are kept.
    """
    wanted = (("executor.kind", executor), ("executor.workers", workers))
    own = [Override(key=key, value=value, source=f"{key}={value}") for key, value in wanted if value is not None]
    loaded = _load(config, overrides(set, backend), own)
    folder = Path("out") / loaded.name if out is None else Path(out)
    with LateProgress(loaded.name, "runs", enabled=progress) as bar:
        outcome = run_sweep(loaded, folder, bar.update)
    return SweepResult(folder=folder, failed={point.label(): error for point, error in outcome.failed})


def read_sweep(folder: str | PathLike[str]) -> SweepResult:
    """The sweep in ``folder``.

    Raises:
        ConfigError: ``folder`` holds no summary of a sweep.
    """
    place = Path(folder)
    if not (place / SUMMARY).is_file():
        raise ConfigError(f"holds no {SUMMARY}; give the folder of a sweep", file=place)
    return SweepResult(folder=place)


def _load(config: SweepConfig, replaced: tuple[Override, ...], own: list[Override]) -> Sweep:
    if isinstance(config, Mapping):
        return sweep_of(config, replaced, own, source=MAPPING, base_dir=Path.cwd())
    return load_sweep(fspath(config), replaced, own)
