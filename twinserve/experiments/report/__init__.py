"""Results as text for the terminal."""

from twinserve.experiments.report.result_table import format_table

__all__ = ["format_table"]
