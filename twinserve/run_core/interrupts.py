"""Ctrl-C and SIGTERM take effect between two steps: an interrupted run leaves its engine and its record whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts_deferred(interrupt: Callable[[], None]) -> Iterator[None]:
    """Inside, the first signal that would raise KeyboardInterrupt calls ``interrupt`` instead; the next one raises.

    Signals that are ignored or kill the process stay as they are. Outside the main thread nothing changes: Python
    handles signals there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raising = [number for number in SIGNALS if callable(signal.getsignal(number))]
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in raising}

    def defer(_number: int, _frame: FrameType | None) -> None:
        _restore(handlers)
        interrupt()

    for number in raising:
        signal.signal(number, defer)
    try:
        yield
    finally:
        _restore(handlers)


def _restore(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
