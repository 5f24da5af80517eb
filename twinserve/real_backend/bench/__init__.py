"""Measurements of the device and of single steps of the engine."""
