"""Faults at any line of the product, counted from the start of a call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import twinserve

PRODUCT = str(Path(twinserve.__file__).parent)


class LineCounter:
    """Counts the lines that the product runs below ``run_in_real_time`` or ``simulate``, and raises at one of them."""

    def __init__(self, error: BaseException | None = None, at: int = -1) -> None:
        self.error, self.at, self.count = error, at, 0
        self.where = ""

    def trace(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(PRODUCT):
            return None
        if event == "line":
            self._line(frame)
        return self.trace

    def _line(self, frame: FrameType) -> None:
        self.count += 1
        if self.count == self.at and self.error is not None:
            self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
            raise self.error


@contextmanager
def traced(counter: LineCounter) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(counter.trace)
    try:
        yield
    finally:
        sys.settrace(before)
