"""Measures the rows that are runs of the workload, and the host gap of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinserve.experiments.backends.backend_run import Progress
from twinserve.experiments.bench.bench_report import BenchRow, Figures
from twinserve.experiments.bench.cases import HOST_GAP, HOST_GAP_TITLE, TAILS, ServingCase
from twinserve.experiments.bench.device import Device
from twinserve.experiments.bench.device_limits import limit_settings
from twinserve.experiments.bench.host_gap import host_gap
from twinserve.experiments.bench.published import PUBLISHED
from twinserve.experiments.bench.session import Session
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.errors import DeviceError, RunError
from twinserve.experiments.run import FinishedRun, run_experiment
from twinserve.experiments.store.run_folder import read_run_folder

LIMITS = "limits"
_GAP_UNIT = "median / mean, ms"


def serving_row(
    case: ServingCase, experiment: Experiment, device: Device, session: Session, on_progress: Progress
) -> tuple[BenchRow, FinishedRun | None]:
    """The row of one run, and the run unless the device could not make it.

    Raises:
        ConfigError: a setting is wrong.
    """
    unit = "p99 TTFT / TPOT / ITL, ms" if case.figures == TAILS else "output tok/s"
    try:
        finished = run_experiment(experiment, session.out, force=session.force, on_progress=on_progress)
    except (DeviceError, RunError) as error:
        failed = isinstance(error, RunError)
        return BenchRow(name=case.name, title=case.title, unit=unit, reason=error.message, failed=failed), None
    row = BenchRow(
        name=case.name,
        title=case.title,
        unit=unit,
        figures=_figures(case, finished.result),
        limit=_limit(case, device, session, finished.result["num_blocks"]),
        published=_published(case.name) if device.comparable else {},
        run_id=finished.run_id,
        note=_note(finished.result),
    )
    return row, finished


def host_gap_row(finished: FinishedRun | None) -> BenchRow:
    """The row of the host gap, from the steps of a stored run."""
    if finished is None:
        return BenchRow(name=HOST_GAP, title=HOST_GAP_TITLE, unit=_GAP_UNIT, reason="its run could not be made")
    gap = host_gap(read_run_folder(finished.folder).record.steps)
    if gap is None:
        return BenchRow(
            name=HOST_GAP, title=HOST_GAP_TITLE, unit=_GAP_UNIT, figures={"median_ms": None, "mean_ms": None}
        )
    return BenchRow(
        name=HOST_GAP,
        title=HOST_GAP_TITLE,
        unit=_GAP_UNIT,
        figures={"median_ms": gap.median_ms, "mean_ms": gap.mean_ms},
        run_id=finished.run_id,
        note=f"{gap.num_steps} steps of {gap.num_rows} sequences",
    )


def _figures(case: ServingCase, result: Mapping[str, Any]) -> Figures:
    return {name: result.get(name) for name in case.figures}


def _published(name: str) -> dict[str, Figures]:
    return {engine: dict(figures) for engine, figures in PUBLISHED.get(name, {}).items()}


def _limit(case: ServingCase, device: Device, session: Session, num_blocks: int) -> Figures:
    """The same run, simulated with every step at the roofline of the measured peaks."""
    if device.hardware is None:
        return {}
    row = f"{case.name} (limit)"
    experiment = session.experiment(row, case.settings(), limit_settings(session.out, num_blocks))
    return _figures(case, run_experiment(experiment, session.out / LIMITS).result)


def _note(result: Mapping[str, Any]) -> str | None:
    failed = result["failed"]
    return f"{failed} of {failed + result['completed']} requests failed" if failed else None
