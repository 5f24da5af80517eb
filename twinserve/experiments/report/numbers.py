"""Numbers as the text of table cells; a dash for what is unknown."""

from __future__ import annotations

UNKNOWN = "-"


def fixed(value: float | None, decimals: int = 1) -> str:
    """``12.3``: a fixed number of decimals."""
    return UNKNOWN if value is None else f"{value:.{decimals}f}"


def signed(value: float | None) -> str:
    """``+1.2``: an error with its sign."""
    return UNKNOWN if value is None else f"{value:+.1f}"


def plain_figure(value: float | None) -> str:
    """``12.34`` below 1000, ``1234.5`` from there on."""
    return UNKNOWN if value is None else fixed(value, 2 if abs(value) < 1000 else 1)


def three_digits(value: float | None) -> str:
    """``1.23``, ``12.3``, ``1,234``: three significant digits, or all before the point."""
    if value is None:
        return UNKNOWN
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:,.{decimals}f}"
