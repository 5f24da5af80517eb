"""Figures of runs and sweeps. They read result folders only, and load matplotlib only when one is drawn."""

from experiments.plots.cdf import plot_compare_cdfs
from experiments.plots.run import plot_run
from experiments.plots.sweep import plot_sweep

__all__ = ["plot_compare_cdfs", "plot_run", "plot_sweep"]
