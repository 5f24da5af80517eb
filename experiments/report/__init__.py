"""Results as text."""

from experiments.report.table import format_table

__all__ = ["format_table"]
