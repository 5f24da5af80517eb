"""A table style that fits a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable

from rich.box import SIMPLE_HEAD
from rich.table import Table


def narrow_table(
    text_columns: Iterable[str], number_columns: Iterable[str], title: str = "", caption: str = ""
) -> Table:
    """A table without rows: text columns, then number columns aligned to the right.

    Only the first column wraps. The table has spaces between columns and a line below the headings.
    """
    look = {"box": SIMPLE_HEAD, "pad_edge": False, "padding": (0, 1, 0, 0)}
    sides = {"title_justify": "left", "caption_justify": "left"}
    table = Table(title=title or None, caption=caption or None, **look, **sides)  # type: ignore[arg-type] # by name
    for index, name in enumerate(text_columns):
        table.add_column(name, overflow="fold", no_wrap=index > 0)
    for name in number_columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table
