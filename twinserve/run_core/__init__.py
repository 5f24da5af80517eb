"""Runs a scheduler core: step boundaries, traffic, recording and scripted outputs, for both backends."""
