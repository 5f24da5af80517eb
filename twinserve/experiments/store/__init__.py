"""Writes and reads the folders of runs, profiles and sweeps."""
