"""Worker processes of a sweep: they end with it however it ends, and leave signals to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from time import sleep
from typing import Any, Self

LOOK_S = 0.2
"""How often a worker looks whether its sweep is still there."""
START = "import sys; sys.path[:] = sys.argv[3:]; from twinserve.experiments.sweep.workers import serve; serve()"
"""What a worker runs; its arguments are the descriptor of its connection, its parent and the parent's import path."""


class WorkerDiedError(Exception):
    """A worker ended in the midst of its task."""


@dataclass(frozen=True, slots=True, eq=False)
class Worker:
    """A process that is given one task after the other."""

    process: subprocess.Popen[bytes]
    connection: Connection

    @classmethod
    def start(cls) -> Self:
        ours, theirs = Pipe()
        arguments = [str(theirs.fileno()), str(os.getpid()), *sys.path]
        with theirs, _signals_stay_here():
            command = [sys.executable, "-P", "-c", START, *arguments]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        return cls(process, ours)

    def give(self, task: Callable[[Any], Any], item: Any) -> None:
        """Raises WorkerDiedError where there is no worker any more."""
        from joblib.externals.loky.backend.reduction import dumps  # classes of a notebook too

        try:
            self.connection.send_bytes(dumps((task, item)))
        except OSError as error:
            raise WorkerDiedError from error

    def take(self) -> Any:
        """The result of the task; raises WorkerDiedError where there will be none."""
        try:
            return self.connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerDiedError from error

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()


def run_on_workers(task: Callable[[Any], Any], items: Iterable[Any], num_workers: int) -> Iterator[Any]:
    """Results as they come. However this ends, no worker is left.

    Raises:
        WorkerDiedError: a worker ended in the midst of its task.
    """
    workers: list[Worker] = []
    busy: dict[Any, Worker] = {}
    try:
        for item in items:
            if len(workers) < num_workers:
                worker = Worker.start()
                workers.append(worker)
            else:
                worker = _next_done(busy)
                yield worker.take()
            worker.give(task, item)
            busy[worker.connection] = worker
        while busy:
            yield _next_done(busy).take()
    finally:
        for worker in workers:
            worker.end()


def _next_done(busy: dict[Any, Worker]) -> Worker:
    """Takes a worker that has a result, or has died, from ``busy``."""
    (connection, *_) = wait(list(busy))
    return busy.pop(connection)


@contextmanager
def _signals_stay_here() -> Iterator[None]:
    """Processes that are started inside never see Ctrl-C or SIGTERM; a signal to this one comes afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def serve() -> None:
    """A worker's whole life."""
    descriptor, parent = map(int, sys.argv[1:3])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    sys.argv[:] = sys.argv[:1]
    connection = Connection(descriptor)
    with suppress(EOFError, OSError):  # the sweep has ended
        while True:
            task, item = connection.recv()
            connection.send(task(item))


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent; a task in progress is dropped, files appear only when they are whole."""
    while os.getppid() == parent:
        sleep(LOOK_S)
    os._exit(1)
