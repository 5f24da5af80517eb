"""What makes a worker process end with its sweep, and leave signals to it; no more is loaded before it is at work."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep

LOOK_S = 0.2
"""How often a worker looks whether its sweep is still there."""


def end_with(parent: int) -> None:
    """Ends this process soon after ``parent``, whose child it is, whatever ended that.

    A task in progress is dropped: results take their names only when they are whole.
    """
    threading.Thread(target=_watch, args=(parent,), name="parent-watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        sleep(LOOK_S)
    os._exit(1)


@contextmanager
def signals_left_to_this_process() -> Iterator[None]:
    """Processes and threads that are started inside never see Ctrl-C or SIGTERM; a signal to us comes afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
