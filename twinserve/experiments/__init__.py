"""Experiments from YAML to results: configuration, workloads, runs, sweeps, metrics, plots and the command line."""
