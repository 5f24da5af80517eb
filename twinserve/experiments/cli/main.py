"""The ``twinserve`` command: finds the subcommand, loads that alone, and turns errors into one line."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from twinserve.experiments.errors import ConfigError, RunError, one_line
from twinserve.version import __version__

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "twinserve.experiments.cli.run:run",
        "sweep": "twinserve.experiments.cli.sweep:sweep",
        "validate": "twinserve.experiments.cli.validate:validate",
        "validate-config": "twinserve.experiments.cli.validate_config:validate_config",
        "list": "twinserve.experiments.cli.list:show",
        "profile": "twinserve.experiments.cli.profile:profile",
        "plot": "twinserve.experiments.cli.plot:plot",
        "generate": "twinserve.experiments.cli.generate:generate",
        "bench-engine": "twinserve.experiments.cli.bench_engine:bench_engine",
        "reproduce": "twinserve.experiments.cli.reproduce:reproduce",
        "calibrate": "twinserve.experiments.cli.calibrate:calibrate",
        "calibrate-note": "twinserve.experiments.cli.calibrate_note:calibrate_note",
    }
)
"""Subcommand -> function (or Typer application) that implements it."""

OUT_OF_MEMORY = (
    "out of memory; lower engine.max_num_seqs, engine.num_gpu_blocks_override or workload.num_prompts"
    " (what had finished stays)"
)
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED, EXIT_CLOSED = 1, 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0 success; 1 a run began and failed; 2 the user's input is wrong (one line on stderr); 130 interrupted, by Ctrl-C or
    SIGTERM; 141 nobody reads the output any more (``| head``).
    """
    try:
        status = _run(argv)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        return _without_output(EXIT_CLOSED)
    except SystemExit:
        if not _is_pacified():
            raise
        return _without_output(EXIT_CLOSED)
    except OSError as error:
        return _without_output(EXIT_FAILED) if _is_of_output(error) else _complain(_cannot(error), EXIT_USAGE)


def _run(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # policies of one's own are named by import path
    try:
        with _terminated_as_interrupted():
            outcome = _application(arguments[0])(args=arguments, prog_name="twinserve", standalone_mode=False)
    except ConfigError as error:
        return _complain(str(error), EXIT_FAILED if isinstance(error, RunError) else EXIT_USAGE)
    except _usage_error() as error:
        return _complain(error.format_message(), EXIT_USAGE)
    except MemoryError:
        return _complain(OUT_OF_MEMORY, EXIT_FAILED)
    except (KeyboardInterrupt, typer.Abort):
        outcome = EXIT_INTERRUPTED
    if outcome == EXIT_INTERRUPTED:
        typer.echo("twinserve: interrupted; what had finished stays", err=True)
    return outcome if isinstance(outcome, int) else 0


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Inside, SIGTERM raises KeyboardInterrupt, unless it is ignored or handled already."""
    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _complain(problem: str, status: int) -> int:
    typer.echo(f"twinserve: error: {one_line(problem)}", err=True)
    return status


def _cannot(error: OSError) -> str:
    """The one line for a file that no reader of ours had a word for."""
    place = f"{error.filename}: " if error.filename is not None else ""
    return f"{place}cannot be used: {error.strerror or error}; give a file or folder that can be read and written"


def _is_of_output(error: OSError) -> bool:
    """Whether it was the terminal, pipe or file behind stdout that failed, which has no name."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF)


def _without_output(status: int) -> int:
    """Nothing can be printed any more, not even what Python prints when it ends."""
    if sys.__stdout__ is not None and (sys.stdout is sys.__stdout__ or _is_pacified()):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
    if status == EXIT_FAILED:
        return _complain("the output cannot be written: is the disk full? (what had finished stays)", status)
    return status


def _is_pacified() -> bool:
    """Whether Typer has met a closed pipe: it then wraps stdout and exits."""
    return type(sys.stdout).__name__ == "PacifyFlushWrapper"


def _usage_error() -> type[Any]:
    """The base of the errors that Typer raises for a wrong command line; it brings its own copy of click's."""
    return next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def _application(wanted: str) -> typer.Typer:
    """The Typer application with the wanted subcommand only, or with all when it is not one of them."""
    app = typer.Typer(name="twinserve", pretty_exceptions_enable=False)
    app.callback()(_describe)
    for name, target in COMMANDS.items():
        if wanted == name or wanted not in COMMANDS:
            _register(app, name, target)
    return app


def _register(app: typer.Typer, name: str, target: str) -> None:
    module, _, attribute = target.partition(":")
    command = getattr(import_module(module), attribute)
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"twinserve {__version__}")
        raise typer.Exit


def _describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """One LLM serving scheduler, two backends: simulate a policy, confirm it on the GPU with one flag."""
