"""Folders of measured steps -> a calibration file with its errors and a picture."""
