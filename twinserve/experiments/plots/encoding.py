"""How a sweep's keys are drawn: one numeric key across, the others as colour, line style and marker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from twinserve.experiments.plots.describe import value_label
from twinserve.experiments.plots.style import LINE_STYLES, MARKERS, colours

if TYPE_CHECKING:
    import pandas as pd

Combination = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """``across`` runs along the x axis; ``channels`` maps ``color``, ``linestyle`` and ``marker`` to a group of keys.

    ``values`` lists, per channel, the combinations of its keys in order of appearance.
    """

    across: str
    channels: dict[str, tuple[str, ...]]
    values: dict[str, list[Combination]]

    @property
    def keys(self) -> list[str]:
        """The keys that tell lines apart, in the order of the channels."""
        return [key for group in self.channels.values() for key in group]

    def line_style(self, combination: Combination) -> dict[str, Any]:
        """Keyword arguments of ``Axes.plot`` for the line with these values of ``keys``."""
        style: dict[str, Any] = {"color": colours(1)[0], "linestyle": "-", "marker": MARKERS[0]}
        given = dict(zip(self.keys, combination, strict=True))
        for channel, group in self.channels.items():
            position = self.values[channel].index(tuple(given[key] for key in group))
            style |= _looks(channel, len(self.values[channel]))[position]
        return style

    def legend(self) -> tuple[list[Any], list[str]]:
        """Handles and labels: one entry per value of each channel, not one per line."""
        from matplotlib.lines import Line2D

        handles, labels = [], []
        for channel, group in self.channels.items():
            looks = _looks(channel, len(self.values[channel]))
            for look, combination in zip(looks, self.values[channel], strict=True):
                neutral: dict[str, Any] = {"color": "#555555", "linestyle": "" if channel == "marker" else "-"}
                if channel == "linestyle":
                    neutral["marker"] = MARKERS[0]
                handles.append(Line2D([], [], **(neutral | look)))
                labels.append(", ".join(value_label(*pair) for pair in zip(group, combination, strict=True)))
        return handles, labels


def encode(summary: pd.DataFrame, swept: Sequence[str], across: str | None = None) -> Encoding:
    """Choose the x axis, unless given, and the channels of the other keys, in their order.

    ``swept`` names at least one column.
    """
    varying = [key for key in swept if summary[key].nunique() > 1] or list(swept)
    across = across or choose_across(summary, varying)
    others = [key for key in varying if key != across]
    groups = {"color": tuple(others[:1]), "linestyle": tuple(others[1:2]), "marker": tuple(others[2:])}
    channels = {channel: group for channel, group in groups.items() if group}
    values = {channel: _combinations(summary, group) for channel, group in channels.items()}
    return Encoding(across=across, channels=channels, values=values)


def name_blanks(summary: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """``summary`` with the text ``none`` for values of ``keys`` that are null, so that they are drawn like others."""
    blank = [key for key in keys if summary[key].isna().any()]
    return summary.assign(**{key: summary[key].astype(object).where(summary[key].notna(), "none") for key in blank})


def choose_across(summary: pd.DataFrame, keys: Sequence[str]) -> str:
    """The numeric key with most distinct values, else the key with most; of equals the first."""
    numeric = [key for key in keys if is_numeric(summary[key])]
    num_values = {key: int(summary[key].nunique()) for key in numeric or keys}
    return max(num_values, key=lambda key: num_values[key])


def is_numeric(column: pd.Series[Any]) -> bool:
    """True for a column of finite numbers (truth values are none)."""
    return column.dtype.kind in "iuf" and bool(np.isfinite(column.to_numpy(dtype=np.float64)).all())


def _combinations(summary: pd.DataFrame, group: tuple[str, ...]) -> list[Combination]:
    rows = summary[list(group)].drop_duplicates().itertuples(index=False, name=None)
    return list(rows)


def _looks(channel: str, count: int) -> list[dict[str, Any]]:
    """Line properties for each value of a channel.

    The first colours are drawn wider, so that lines that coincide stay visible; markers of all line styles but the
    first are hollow, so that single points can be told apart.
    """
    if channel == "color":
        widths = [1.2 + 0.5 * max(min(count, 4) - 1 - rank, 0) for rank in range(count)]
        return [{"color": colour, "linewidth": width} for colour, width in zip(colours(count), widths, strict=True)]
    if channel == "marker":
        return [{"marker": marker} for marker in islice(cycle(MARKERS), count)]
    faces: list[dict[str, Any]] = [{}, *[{"markerfacecolor": "white"}] * (count - 1)]
    return [{"linestyle": style} | face for style, face in zip(cycle(LINE_STYLES), faces, strict=False)]
