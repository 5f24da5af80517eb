"""The experiments, sweeps, models, GPUs and calibrations that come with the package."""
