"""Results as text."""

from twinserve.experiments.report.table import format_table

__all__ = ["format_table"]
