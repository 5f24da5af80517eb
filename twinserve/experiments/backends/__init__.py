"""Runs an experiment on the backend that its configuration names."""
