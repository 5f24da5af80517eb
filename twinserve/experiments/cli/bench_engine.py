"""``twinserve bench-engine``: measures the real engine and compares it with published engines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinserve.experiments.cli.options import Out, Progress, Set, read_overrides

if TYPE_CHECKING:
    from twinserve.experiments.bench.bench_report import BenchReport, BenchRow
    from twinserve.experiments.files.progress import LateProgress


def bench_engine(
    config: Annotated[str, typer.Argument(help="A YAML file, or the name of a packaged one.")] = "bench/engine",
    cases: Annotated[
        list[str] | None, typer.Option("--cases", metavar="ROW,...", help="Rows to measure (see below); all if none.")
    ] = None,
    attention_backend: Annotated[
        str | None, typer.Option(metavar="NAME", help="Replaces `real.attention_backend`.")
    ] = None,
    settings: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer requests and repeats.")] = False,
    out: Out = Path("out/bench-engine"),
    force: Annotated[bool, typer.Option("--force", help="Run again what is finished in OUT.")] = False,
    progress: Progress = True,
) -> int:
    """Measure the engine on this machine: throughput, tails, single steps, host gap, and where a step's time goes.

    Rows: eager-512, graphs-512, graphs-8192, rate-512, rate-8192, decode-256, decode-1, host-gap, breakdown. Exit
    status 1 when a run broke off, or no row could be measured.
    """
    from twinserve.experiments.bench.cases import select
    from twinserve.experiments.bench.run import run_bench
    from twinserve.experiments.bench.session import Session
    from twinserve.experiments.settings.overrides import Override

    overrides = read_overrides(settings)
    if attention_backend is not None:
        source = f"--attention-backend {attention_backend}"
        overrides += (Override(key="real.attention_backend", value=attention_backend, source=source),)
    session = Session(config=config, overrides=overrides, out=out, quick=quick, force=force)
    report = run_bench(session, select(cases or ()), _Terminal(enabled=progress))
    _show(report, out)
    return 0 if report.is_success else 1


class _Terminal:
    """One line per finished row, and a bar while one takes long."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled

    def bar(self, title: str, unit: str) -> LateProgress:
        from twinserve.experiments.files.progress import LateProgress

        return LateProgress(title, unit, enabled=self._enabled)

    def done(self, row: BenchRow) -> None:
        from twinserve.experiments.bench.bench_table import figures_text

        result = row.reason or f"{figures_text(row.figures, row.figures)} {row.unit}"
        typer.echo(f"{row.name}: {result}")


def _show(report: BenchReport, out: Path) -> None:
    from rich.console import Console

    from twinserve.experiments.bench.bench_table import breakdown_table, peaks_line, rows_table
    from twinserve.experiments.bench.plot import plot_breakdown
    from twinserve.experiments.files import strict_json
    from twinserve.experiments.files.atomic import write_text
    from twinserve.experiments.files.names import BENCHMARK, BENCHMARK_PICTURE
    from twinserve.experiments.plots.style import save

    write_text(out / BENCHMARK, strict_json.dumps(report.as_json()))
    console = Console()
    typer.echo(f"\n{peaks_line(report)}")
    if report.rows:
        console.print(rows_table(report.rows))
    if report.breakdown:
        console.print(breakdown_table(report.breakdown))
    typer.echo(f"All figures in {out / BENCHMARK}")
    figure = plot_breakdown(report.breakdown, f"{report.model['name']} on {report.device['name']}")
    if figure is not None:
        typer.echo(f"Picture in {save(figure, out / BENCHMARK_PICTURE)}")
