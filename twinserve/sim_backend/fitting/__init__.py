"""Fits a calibration to measured steps."""
