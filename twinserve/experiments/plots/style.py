"""One look for all figures: paper column width, 7 pt text or larger, colours that colour-blind readers can tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinserve.experiments.errors import ConfigError
from twinserve.experiments.files.atomic import write_files

if TYPE_CHECKING:
    from twinserve.experiments.plots.figure import HouseFigure

COLUMN_WIDTH = 3.4  # inches
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
LINE_STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@contextmanager
def stacked_panels(
    num_panels: int, panel_height: float, title: str, **subplots: Any
) -> Iterator[tuple[HouseFigure, list[Any]]]:
    """A single-column figure of panels below each other, in the house style while the block lasts."""
    from matplotlib import rc_context

    from twinserve.experiments.plots.figure import RC_PARAMS, HouseFigure

    with rc_context(RC_PARAMS):
        figure = HouseFigure(figsize=(COLUMN_WIDTH, num_panels * panel_height + 0.35))
        axes = figure.subplots(num_panels, 1, squeeze=False, **subplots)
        if title:
            figure.suptitle(title)
        yield figure, list(axes[:, 0])


def save(figure: Any, path: Path) -> Path:
    """Write the figure atomically; the suffix of ``path`` chooses the format. The same data gives the same bytes."""
    metadata = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix)
    suffix = path.suffix.removeprefix(".") or None
    try:
        write_files(path.parent, {path.name: lambda place: figure.savefig(place, format=suffix, metadata=metadata)})
    except ValueError as error:  # a suffix that is no format
        raise ConfigError(f"{error}; use .png, .pdf or .svg", file=path) from error
    return path


def colours(count: int) -> Sequence[Any]:
    """``count`` distinguishable colours: a qualitative palette while it lasts, then shades of one scale."""
    if count <= len(OKABE_ITO):
        return OKABE_ITO[:count]
    from matplotlib import colormaps

    return [colormaps["cividis"](i / (count - 1)) for i in range(count)]


def point_legend(axis: Any, place: str, **look: Any) -> None:
    """A legend of clouds of small, faint points: its marks are large and solid, its ground hides points behind it."""
    legend = axis.legend(loc=place, handletextpad=0.2, frameon=True, framealpha=0.85, edgecolor="none", **look)
    for handle in legend.legend_handles:
        handle.set(alpha=1.0, markersize=4)


def plain_numbers(axis: Any) -> None:
    """Tick labels of a logarithmic axis, whose limits are set, as 20, 500, 1000 in place of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    steps = (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
    axis.set_major_locator(LogLocator(base=10, subs=steps, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
