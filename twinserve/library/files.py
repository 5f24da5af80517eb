"""Figures as files."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from twinserve.experiments.plots.style import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def saved(figure: Figure, path: str | PathLike[str] | None) -> Figure:
    """``figure``, written to ``path`` when it is given.

    Raises:
        ConfigError: the file cannot be written, or its suffix names no format.
    """
    if path is not None:
        save(figure, Path(path))
    return figure
