"""Fitting the terms of a calibration to measured steps."""
