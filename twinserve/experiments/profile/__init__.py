"""Profiles of the real engine: measured steps, the data of a calibration."""
