"""Runs the benchmark: the device's peaks, every run of the workload, then single steps."""

from __future__ import annotations

from dataclasses import asdict
from typing import Protocol

from twinserve.experiments.bench.bench_report import BenchReport, BenchRow
from twinserve.experiments.bench.cases import HOST_GAP, LARGE, Selection, ServingCase
from twinserve.experiments.bench.device import Device, probe_device
from twinserve.experiments.bench.serving import host_gap_row, serving_row
from twinserve.experiments.bench.session import Session
from twinserve.experiments.bench.steps import step_parts, step_row, time_steps
from twinserve.experiments.config.load import Experiment
from twinserve.experiments.files.progress import LateProgress
from twinserve.experiments.run import FinishedRun


class Screen(Protocol):
    """Where a benchmark shows how far it is."""

    def bar(self, title: str, unit: str) -> LateProgress:
        """A progress bar."""

    def done(self, row: BenchRow) -> None:
        """A row is finished."""


def run_bench(session: Session, selection: Selection, screen: Screen) -> BenchReport:
    """All selected rows; one that the device cannot run has a reason in place of figures.

    Single steps come last, since they are traced: nothing is timed with a tracer in the process.

    Raises:
        ConfigError: the configuration is wrong, or there is no such device.
    """
    session.check()
    experiments = {case.name: session.experiment(case.name, case.settings()) for case in (*selection.serving, LARGE)}
    large = experiments[LARGE.name]
    device = probe_device(large, session.out)
    serving_rows = _serving_rows(session, selection, experiments, device, screen)
    with screen.bar("single steps", "steps") as bar:
        timings, engine = time_steps(large, selection.steps, session.repeats, bar.update)
    step_rows = [step_row(case, timings[case.name], device) for case in selection.shown_steps]
    for row in step_rows:
        screen.done(row)
    return BenchReport(
        device=device.facts,
        model=asdict(device.model),
        engine=engine,
        peaks=device.peaks,
        rows=(*serving_rows, *step_rows),
        breakdown=tuple(step_parts(case, timings[case.name], device) for case in selection.breakdown),
    )


def _serving_rows(
    session: Session, selection: Selection, experiments: dict[str, Experiment], device: Device, screen: Screen
) -> list[BenchRow]:
    rows: list[BenchRow] = []
    runs: dict[str, FinishedRun | None] = {}

    def run(case: ServingCase) -> BenchRow:
        with screen.bar(case.title, "requests") as bar:
            row, runs[case.name] = serving_row(case, experiments[case.name], device, session, bar.update)
        return row

    for case in selection.serving:
        rows.append(run(case))
        screen.done(rows[-1])
    if HOST_GAP in selection.names:
        rows.append(host_gap_row(runs[LARGE.name]))
        screen.done(rows[-1])
    return rows
