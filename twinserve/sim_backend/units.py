"""Nanoseconds in the units that configurations and calibrations use."""

NS_PER_US = 1e3
NS_PER_MS = 1e6
