"""Readers of trace files; each turns a file into a ``Table``."""
