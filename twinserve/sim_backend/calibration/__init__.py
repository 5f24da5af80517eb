"""Step times from a calibration file."""
