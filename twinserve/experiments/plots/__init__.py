"""Figures of runs and sweeps, from their folders alone; matplotlib is loaded only when one is drawn."""

from twinserve.experiments.plots.cdf import plot_compare_cdfs
from twinserve.experiments.plots.run import plot_run
from twinserve.experiments.plots.sweep import plot_sweep

__all__ = ["plot_compare_cdfs", "plot_run", "plot_sweep"]
