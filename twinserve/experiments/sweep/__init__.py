"""Sweeps: many experiments from one file, and their summary."""
