"""Fits a calibration to folders of measured steps, and reports its errors."""
