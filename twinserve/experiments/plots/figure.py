"""The type of every figure, which keeps the house style whenever it is drawn or saved, without pyplot."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

RC_PARAMS = {
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.borderaxespad": 0.3,
    "legend.labelspacing": 0.3,
    "figure.titlesize": 8,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
}
SCREEN_DPI = 150


class HouseFigure(Figure):
    """A matplotlib figure that nobody else holds: it goes when its last reference goes. Notebooks show it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        FigureCanvasAgg(self)

    def draw(self, renderer: Any) -> None:
        """matplotlib makes tick labels only now, so the style is needed here as well."""
        with rc_context(RC_PARAMS):
            super().draw(renderer)

    def savefig(self, fname: Any, **options: Any) -> None:
        with rc_context(RC_PARAMS):
            super().savefig(fname, **options)

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png", dpi=SCREEN_DPI)
        return picture.getvalue()
