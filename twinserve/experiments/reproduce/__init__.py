"""Simulates published measurements and compares the figures."""
