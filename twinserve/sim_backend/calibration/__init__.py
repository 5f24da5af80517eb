"""Calibrated step times: the calibration as a value, and the cost model that applies it."""
