"""Measures an engine over a designed grid of steps: what a calibration is fitted to."""
