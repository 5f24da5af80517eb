"""Compares a real run with its simulation: decisions, figures and step times."""
