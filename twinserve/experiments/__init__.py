"""Everything around a run: configurations, workloads, metrics, stored results, sweeps, plots and the command line."""
